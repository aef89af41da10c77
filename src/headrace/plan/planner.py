"""From a question to a plan: which split, what a replica gives, how many replicas."""

from __future__ import annotations

import math

import msgspec

from headrace.plan.demand import Slo
from headrace.plan.deployment import Split
from headrace.plan.latency import Latency, capacity_per_s, latency_at
from headrace.plan.memory import Memory, memory_of
from headrace.plan.names import PlanError
from headrace.plan.question import Ask
from headrace.plan.replica import Replica, deployment_for, replica_of
from headrace.plan.slo import NoSplit, SloImpossible, impossible
from headrace.plan.split import candidates, forced

# Without traffic a replica must take this many sequences at once: fewer is a demo, not a service.
MIN_CONCURRENT = 10
# Context at which that is asked, where the planned one is longer.
_CONCURRENT_CONTEXT = 8192
# More replicas than this is a typing error in the rate.
MAX_REPLICAS = 1_000_000
_ROUNDING = 1e-9
# Throughputs nearer than this are equal: the model is no better.
_NEAR_RATIO = 0.05


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """All replicas of a plan; latencies are those of its expected traffic, head-room unused."""

    replicas: int
    cards: int
    rate_per_s: float
    capacity_per_s: float  # of all replicas, within SLO and utilisation ceiling
    utilization: float
    latency: Latency


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an Ask; `fleet` is None without traffic."""

    ask: Ask
    replica: Replica
    fleet: Fleet | None

    @property
    def hosts_per_replica(self) -> int:
        """Machines that one replica spans."""
        return math.ceil(self.replica.split.gpus / self.ask.gpus_per_host)

    @property
    def hosts(self) -> int:
        """Machines of the whole fleet; of one replica where there is none."""
        replicas = self.fleet.replicas if self.fleet else 1
        together = self.ask.gpus_per_host // self.replica.split.gpus
        return math.ceil(replicas / together) if together else replicas * self.hosts_per_replica

    def latency(self, percentile: float) -> Latency:
        """TTFT and TPOT of the fleet at another percentile than the SLO's, 0–1."""
        assert self.fleet is not None
        each = self.ask.traffic.at(self.fleet.rate_per_s / self.fleet.replicas)
        found = latency_at(self.replica.law, each, percentile, self.fleet.replicas)
        assert found is not None  # the fleet was sized at this rate
        return found


def plan(ask: Ask) -> Plan:
    """Answer the question.

    Raises PlanError when the model cannot be cut or held, and SloImpossible, which names the term
    that breaks the SLO, when no split keeps it at any rate.
    """
    fitting = fitting_replicas(ask)
    able = [replica for replica in fitting if replica.capacity_per_s > 0]
    if not able and ask.slo_assumed and ask.slo != Slo():
        return plan(msgspec.structs.replace(ask, slo=Slo()))
    if ask.traffic.rate_per_s <= 0 and ask.cards is None:
        return Plan(ask=ask, replica=_without_traffic(ask, able or fitting), fleet=None)
    if not able:
        raise impossible(ask.slo, ask.traffic, [(r.split, r.law) for r in fitting])
    chosen = _with_cards(ask, able) if ask.cards else min(able, key=lambda r: _cost(ask, r))
    return Plan(ask=ask, replica=chosen, fleet=_fleet(ask, chosen))


def fitting_replicas(ask: Ask) -> list[Replica]:
    """Every split worth comparing that holds the model and one sequence of the planned context.

    All splits inside one machine; the smallest pipeline only when there is none of those.
    """
    if ask.tp or ask.pp:
        splits = [forced(ask.model, ask.tp, ask.pp)]
    else:
        splits = list(candidates(ask.model, ask.gpus_per_host))
    found: list[Replica] = []
    nearest: Memory | None = None
    for split in splits:
        if found and split.pp > 1:
            break
        deployment = deployment_for(ask, split)
        nearest = memory = memory_of(deployment, ask.context_tokens)
        if memory.fits and memory.kv_capacity_tokens >= ask.context_tokens:
            found.append(replica_of(ask, deployment, memory))
    if not found:
        raise _no_room(ask, splits[-1], nearest)
    return found


def _no_room(ask: Ask, split: Split, memory: Memory | None) -> PlanError:
    if memory is None:
        return NoSplit(f"{ask.model.name} cannot be cut over {ask.gpus_per_host} cards")
    room = memory.card_bytes * memory.utilization
    held = memory.weight_bytes + memory.activation_bytes + memory.runtime_bytes
    if not memory.fits:
        return NoSplit(
            f"{ask.model.name} in {ask.weights_dtype} does not fit on "
            f"{split.gpus} × {ask.gpu.name}: {held / 1e9:.1f} GB a card wanted, "
            f"{room / 1e9:.1f} GB to use"
        )
    return NoSplit(
        f"{ask.model.name} fits on {split.gpus} × {ask.gpu.name}, but its KV cache holds "
        f"{memory.kv_capacity_tokens} tokens, less than one sequence of --context "
        f"{ask.context_tokens}"
    )


def _without_traffic(ask: Ask, fitting: list[Replica]) -> Replica:
    """The split that serves most for its cards, among those that run ten sequences at once."""
    wanted = MIN_CONCURRENT * min(ask.context_tokens, _CONCURRENT_CONTEXT)
    roomy = [r for r in fitting if r.memory.kv_capacity_tokens >= wanted]
    return max(
        roomy or fitting[-1:],
        key=lambda r: (r.capacity_per_s / r.split.gpus, -r.split.gpus),
    )


def _cost(ask: Ask, replica: Replica) -> tuple[int, float]:
    """Cards that this split needs for the demand; of equal ones the fastest."""
    return replicas_for(ask, replica) * replica.split.gpus, replica.single_step_s


def pooled_capacity_per_s(ask: Ask, replica: Replica, replicas: int) -> float:
    """What one of so many replicas serves within SLO and ceiling: a crowd evens itself out."""
    return capacity_per_s(replica.law, ask.traffic, ask.slo, ask.max_utilization, replicas)


def replicas_for(ask: Ask, replica: Replica) -> int:
    """Replicas that keep SLO and utilisation ceiling under traffic plus head-room."""
    alone = ask.demand_per_s / replica.capacity_per_s
    if alone > MAX_REPLICAS:
        raise PlanError(f"--rate needs {alone:.3g} replicas, above {MAX_REPLICAS}", param="rate")
    most = max(1, math.ceil(alone - _ROUNDING))
    # More replicas serve more each, so what `most` of them would need is too few or just enough.
    count = max(
        1, math.ceil(ask.demand_per_s / pooled_capacity_per_s(ask, replica, most) - _ROUNDING)
    )
    while count < most:
        if count * pooled_capacity_per_s(ask, replica, count) >= ask.demand_per_s * (1 - _ROUNDING):
            break
        count += 1
    return count + (1 if ask.always_on else 0)


def _with_cards(ask: Ask, able: list[Replica]) -> Replica:
    """The split that serves most with the cards at hand; of near-equal ones the fastest."""
    cards = ask.cards or 0
    usable = [r for r in able if r.split.gpus <= cards]
    if not usable:
        need = min(r.split.gpus for r in able)
        raise NoSplit(f"--gpus {cards} is less than the {need} cards of one replica")
    served = {r.split: _served_per_s(ask, r, cards // r.split.gpus) for r in usable}
    near = max(served.values()) * (1 - _NEAR_RATIO)
    return min(
        (r for r in usable if served[r.split] >= near),
        key=lambda r: (r.single_step_s, r.split.gpus),
    )


def _served_per_s(ask: Ask, replica: Replica, replicas: int) -> float:
    return replicas * pooled_capacity_per_s(ask, replica, replicas)


def _fleet(ask: Ask, replica: Replica) -> Fleet:
    if ask.cards is None:
        replicas, rate = replicas_for(ask, replica), ask.traffic.rate_per_s
    else:
        replicas = ask.cards // replica.split.gpus
        rate = _rate_of(ask, replica, replicas)
    each = ask.traffic.at(rate / replicas)
    latency = latency_at(replica.law, each, ask.slo.percentile, replicas)
    if latency is None:
        raise _too_much(ask, replica, replicas)
    return Fleet(
        replicas=replicas,
        cards=replicas * replica.split.gpus,
        rate_per_s=rate,
        capacity_per_s=replicas * pooled_capacity_per_s(ask, replica, replicas),
        utilization=latency.utilization,
        latency=latency,
    )


def _rate_of(ask: Ask, replica: Replica, replicas: int) -> float:
    """The rate that so many replicas are to serve; where none is asked for, what they can."""
    spare = 1 if ask.always_on and replicas > 1 else 0
    serving = replicas - spare
    most = serving * pooled_capacity_per_s(ask, replica, serving) / (1 + ask.headroom_ratio)
    if ask.traffic.rate_per_s > most:
        raise _too_much(ask, replica, replicas)
    return ask.traffic.rate_per_s or most


def _too_much(ask: Ask, replica: Replica, replicas: int) -> SloImpossible:
    return SloImpossible(
        f"{ask.traffic.rate_per_s:g} requests/s with {ask.headroom_ratio:.0%} head-room need "
        f"{replicas_for(ask, replica)} replicas of {replica.split.gpus} × {ask.gpu.name} within "
        f"the SLO; there are cards for {replicas}"
    )
