"""From a question to a plan: which split, what a replica gives, how many replicas."""

from __future__ import annotations

import math

import msgspec

from headrace.plan.gpus import Gpu
from headrace.plan.links import Link
from headrace.plan.memory import (
    DEFAULT_UTILIZATION,
    Memory,
    Split,
    default_batched_tokens,
    default_max_num_seqs,
    memory_of,
    safe_utilization,
)
from headrace.plan.models import Model
from headrace.plan.names import PlanError
from headrace.plan.queueing import (
    Latency,
    Slo,
    Traffic,
    capacity_per_s,
    latency_at,
    saturation_rate_per_s,
)
from headrace.plan.roofline import (
    DEFAULT_EFFICIENCY,
    Efficiency,
    Machine,
    decode_step_s,
    prefill_s,
)
from headrace.plan.slo import NoSplit, SloImpossible, impossible
from headrace.plan.split import candidates, forced
from headrace.plan.steplaw import StepLaw, machine_of, step_law

# Promised when the user names none: a first token within two seconds, then 20 tokens a second,
# which is faster than people read.
ASSUMED_SLO = Slo(ttft_s=2.0, tpot_s=0.05)

# Without traffic a replica must take this many sequences at once: fewer is a demo, not a service.
MIN_CONCURRENT = 10
# Context at which that is asked, where the planned one is longer.
_CONCURRENT_CONTEXT = 8192
# More replicas than this is a typing error in the rate.
MAX_REPLICAS = 1_000_000


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the planner.

    `traffic.rate_per_s` 0 means that no traffic is known: a replica is described, no fleet.
    `cards` is what there is; the fleet then fills it. `always_on` asks for one replica to spare. An
    SLO that is `slo_assumed` is dropped where it cannot be kept.
    """

    model: Model
    gpu: Gpu
    traffic: Traffic
    weights_dtype: str
    kv_dtype: str
    context_tokens: int
    inside: Link
    between: Link
    gpus_per_host: int = 8
    slo: Slo = ASSUMED_SLO
    slo_assumed: bool = False
    headroom_ratio: float = 0.2
    max_utilization: float = 0.8
    always_on: bool = False
    tp: int | None = None
    pp: int | None = None
    cards: int | None = None
    efficiency: Efficiency = DEFAULT_EFFICIENCY
    measured: bool = False

    @property
    def demand_per_s(self) -> float:
        """The rate to plan for: the traffic's, and the head-room."""
        return self.traffic.rate_per_s * (1 + self.headroom_ratio)


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a plan."""

    split: Split
    machine: Machine
    memory: Memory
    law: StepLaw
    prefill_s: float  # of one mean prompt on an idle replica
    single_step_s: float  # TPOT of a lone stream
    saturation_per_s: float
    capacity_per_s: float  # highest rate within SLO and utilisation ceiling


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """All replicas of a plan; latencies are those of its expected traffic, head-room unused."""

    replicas: int
    cards: int
    rate_per_s: float
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
        raise impossible(ask.slo, ask.traffic, [(r.split, r.law, r.prefill_s) for r in fitting])
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
        memory = _memory(ask, split)
        nearest = memory
        if memory.fits and memory.kv_capacity_tokens >= ask.context_tokens:
            found.append(replica_of(ask, split, memory))
    if not found:
        raise _no_room(ask, splits[-1], nearest)
    return found


def replica_of(ask: Ask, split: Split, memory: Memory | None = None) -> Replica:
    """What one replica of that split gives."""
    memory = memory or _memory(ask, split)
    machine = _machine(ask, split)
    traffic = ask.traffic
    law = step_law(
        ask.model,
        ask.gpu,
        split.tp,
        split.pp,
        ask.weights_dtype,
        ask.kv_dtype,
        context_tokens=max(1, round(traffic.context_tokens)),
        # Long prompts have most of the attention; uncached tokens look back on the cached ones.
        prompt_tokens=traffic.input_tokens * (1 + traffic.input_cv**2) * (1 + traffic.hit_ratio),
        machine=machine,
        efficiency=ask.efficiency,
    )
    law = msgspec.structs.replace(
        law,
        kv_capacity_tokens=memory.kv_capacity_tokens,
        max_num_seqs=safe_max_num_seqs(ask, memory),
    )
    return Replica(
        split=split,
        machine=machine,
        memory=memory,
        law=law,
        prefill_s=prefill_s(
            ask.model,
            machine,
            ask.weights_dtype,
            traffic.uncached_tokens,
            law.batched_tokens,
            ask.efficiency,
        ),
        single_step_s=decode_step_s(
            ask.model,
            machine,
            ask.weights_dtype,
            ask.kv_dtype,
            1,
            traffic.context_tokens,
            ask.efficiency,
        ),
        saturation_per_s=saturation_rate_per_s(law, traffic),
        capacity_per_s=capacity_per_s(law, traffic, ask.slo, ask.max_utilization),
    )


def safe_max_num_seqs(ask: Ask, memory: Memory) -> int:
    """`--max-num-seqs` at which the KV cache holds every sequence at its full mean length.

    At most what vLLM takes by itself, at least one.
    """
    traffic = ask.traffic
    length = traffic.input_tokens * (1 - traffic.shared_ratio) + traffic.output_tokens
    fit = int(memory.kv_capacity_tokens / max(1.0, length))
    return max(1, min(default_max_num_seqs(ask.gpu), fit))


def advised_utilization(ask: Ask, memory: Memory) -> float:
    """`--gpu-memory-utilization` to start with: the default, or what the plan had to assume."""
    return max(memory.utilization, min(DEFAULT_UTILIZATION, safe_utilization(ask.gpu)))


def _memory(ask: Ask, split: Split) -> Memory:
    return memory_of(
        ask.model,
        ask.gpu,
        split,
        ask.weights_dtype,
        ask.kv_dtype,
        context_tokens=ask.context_tokens,
        batched_tokens=default_batched_tokens(ask.gpu),
    )


def _machine(ask: Ask, split: Split) -> Machine:
    across = split.tp > ask.gpus_per_host
    one_host = split.gpus <= ask.gpus_per_host
    return machine_of(
        ask.gpu,
        split,
        ask.between if across else ask.inside,
        ask.inside if one_host else ask.between,
    )


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


def _cost(ask: Ask, replica: Replica) -> tuple[int, int]:
    """Cards that this split needs for the demand; the smaller group wins a tie."""
    return replicas_for(ask, replica) * replica.split.gpus, replica.split.gpus


def replicas_for(ask: Ask, replica: Replica) -> int:
    """Replicas that keep SLO and utilisation ceiling under traffic plus head-room."""
    needed = ask.demand_per_s / replica.capacity_per_s
    if needed > MAX_REPLICAS:
        raise PlanError(f"--rate needs {needed:.3g} replicas, above {MAX_REPLICAS}", param="rate")
    return max(1, math.ceil(needed - 1e-9)) + (1 if ask.always_on else 0)


def _with_cards(ask: Ask, able: list[Replica]) -> Replica:
    """The split that serves most with the cards at hand."""
    cards = ask.cards or 0
    usable = [r for r in able if r.split.gpus <= cards]
    if not usable:
        need = min(r.split.gpus for r in able)
        raise NoSplit(f"--gpus {cards} is less than the {need} cards of one replica")
    return max(
        usable,
        key=lambda r: (round(cards // r.split.gpus * r.capacity_per_s, 9), -r.split.gpus),
    )


def _fleet(ask: Ask, replica: Replica) -> Fleet:
    if ask.cards is not None:
        replicas = ask.cards // replica.split.gpus
        spare = 1 if ask.always_on and replicas > 1 else 0
        offered = replica.capacity_per_s * (replicas - spare) / (1 + ask.headroom_ratio)
        rate = ask.traffic.rate_per_s or offered
    else:
        replicas = replicas_for(ask, replica)
        rate = ask.traffic.rate_per_s
    latency = latency_at(replica.law, ask.traffic.at(rate / replicas), ask.slo.percentile)
    if latency is None:
        raise SloImpossible(
            f"{rate:g} requests/s are above the {replica.saturation_per_s * replicas:.3g} that "
            f"{replicas} replicas of {replica.split.gpus} cards can do"
        )
    return Fleet(
        replicas=replicas,
        cards=replicas * replica.split.gpus,
        rate_per_s=rate,
        utilization=latency.utilization,
        latency=latency,
    )
