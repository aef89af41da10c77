"""The router as a library: the gateway's decisions for any program, without network or clock.

A router keeps its state in a shared segment of its own, as the gateway's processes do, and is used
from one thread. Time comes in as `now_ns`, any clock that never goes back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.config import Admission, Retry, Routing, normalize, parse_replicas, replica_id
from headrace.config.keys import fields
from headrace.config.reader import Problems, read_section
from headrace.core import balancer as core
from headrace.core.explanation import explain
from headrace.core.segment import FAILURE_NAMES, MAX_GROUPS, MAX_MODELS, MAX_SLOTS, Segment
from headrace.errors import ConfigError, InvalidRequest, NoReplica, Overloaded, UnknownModel
from headrace.foreign import Foreign, ForeignLoad, foreign_now
from headrace.lease import Lease
from headrace.replica import Replica
from headrace.request import BLOCK_TOKENS, RouteRequest

SECTIONS: dict[str, type[Routing | Admission | Retry]] = {
    "routing": Routing,
    "admission": Admission,
    "retry": Retry,
}
ELIGIBLE_STATES = ("ready", "degraded")
STATES = (*ELIGIBLE_STATES, "warming", "draining", "drained", "ejected")


class _Member:
    """A replica and what the program said of it."""

    def __init__(self, replica: Replica, slot: int, generation: int) -> None:
        self.replica = replica
        self.id = replica_id(normalize(replica.url))
        self.slot = slot
        self.generation = generation
        self.reported_generation: object = None
        self.state = "ready"
        self.weight = replica.weight
        self.running = self.waiting = -1
        self.kv_usage = math.nan
        self.kv_capacity_tokens = 0
        self.foreign = Foreign()
        self.foreign_load = ForeignLoad()
        self.scraped_at_ns = 0
        self.is_followed = False  # the program says what its cache holds
        self.entered_tokens = 0  # of a block that is not full yet
        self.pairs: dict[str, int] = {}


class Router:
    """Chooses replicas for requests and keeps account of what is in flight.

    Args:
        replicas: at most 1,024, each URL once.
        policy: one of `headrace.core.balancer.POLICIES`.
        seed: makes ties repeatable.
        settings: keys of `routing`, `admission` and `retry` as in the gateway's configuration.

    Raises:
        ConfigError: with every mistake in replicas and settings.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        policy: str = "cost_aware",
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.settings = _read_settings({"policy": policy, **settings})
        _check(replicas)
        self._segment = Segment.create(1, self.settings["prefix_table_bytes"])
        self._balancer = core.Balancer(self._segment, 0, {**self.settings, "seed": seed})
        self._members: dict[str, _Member] = {}
        self._by_slot: dict[int, _Member] = {}
        self._models: dict[str, int] = {}
        self._free = list(range(MAX_SLOTS - 1, -1, -1))
        self._generations = [0] * MAX_SLOTS
        self._free_pairs: list[int] = []
        self._next_pair = 1
        self._leaving: list[_Member] = []
        for replica in replicas:
            self._enrol(replica)
        self._publish()

    # ---- requests

    def route(self, request: RouteRequest, now_ns: int) -> Lease:
        """Choose a replica and claim it.

        Raises:
            UnknownModel: no replica has ever served the request's model.
            InvalidRequest: it names none, and there are several.
            NoReplica: nobody can serve it now.
            Overloaded: every replica, or the whole router, is above its limit; `retry_after_s`
                says when it is worth another try.
        """
        model, name = self._model_of(request)
        bound = request.bind(model, name, self.settings["session_headers"])
        self._balancer.enter(1)
        verdict, taken = self._balancer.open(bound, now_ns)
        if verdict != core.Verdict.ROUTED:
            self._balancer.enter(-1)
            self._refuse(verdict, model, name, now_ns)
        return Lease(self._by_slot[taken.slot].replica, taken, bound, self._leave)

    def retry(self, lease: Lease, now_ns: int, reason: str = "refused") -> Lease | None:
        """Fail an open lease and claim another replica for its request.

        Args:
            lease: open; it has failed afterwards in any case.
            now_ns: when.
            reason: as `Lease.fail`.

        Returns:
            A lease whose `start_at_ns` is the end of the back-off, or None: the budget is empty,
            `retry.max_retries` is reached, or nobody else can take it.
        """
        if not lease.open:
            return None
        verdict, taken = self._balancer.reopen(
            lease.bound, lease.taken, FAILURE_NAMES.index(reason), now_ns
        )
        if verdict != core.Verdict.ROUTED:
            lease.fail(now_ns, reason)
            return None
        self._balancer.enter(1)
        lease.fail(now_ns, reason)
        return Lease(self._by_slot[taken.slot].replica, taken, lease.bound, self._leave)

    def explain(self, request: RouteRequest, now_ns: int) -> list[dict[str, Any]]:
        """Every replica of the request's model with its score and terms; changes nothing.

        Returns:
            One dict a replica: `id`, `url`, `chosen`, `eligible`, `why` (not), `score` (lower is
            better; None if not eligible) and `terms`.
        """
        model, name = self._model_of(request)
        bound = request.bind(model, name, self.settings["session_headers"])
        found = explain(self._balancer, bound, now_ns)
        rows = []
        for row in found["replicas"]:
            slot = row.pop("slot")
            member = self._by_slot[slot]
            chosen = slot == found["slot"]
            rows.append({"id": member.id, "url": member.replica.url, "chosen": chosen, **row})
        return rows

    def _model_of(self, request: RouteRequest) -> tuple[int, str]:
        name = request.model
        if name is None:
            if len(self._models) != 1:
                raise InvalidRequest(f"model is missing; {len(self._models)} are served")
            name = next(iter(self._models))
        if name not in self._models:
            name = self.settings["model_aliases"].get(name, name)
        if name not in self._models:
            raise UnknownModel(f"no replica serves the model {name!r}")
        return self._models[name], name

    def _refuse(self, verdict: int, model: int, name: str, now_ns: int) -> None:
        wait_s = self._balancer.wait_s(model, now_ns)
        if verdict == core.Verdict.NO_REPLICA:
            raise NoReplica(f"no replica can serve the model {name!r} now", wait_s)
        if verdict == core.Verdict.GATEWAY_FULL:
            limit = self.settings["max_concurrent_requests"]
            raise Overloaded(f"{limit} requests are in progress, the limit", wait_s)
        raise Overloaded(f"every replica of the model {name!r} is above its limit", wait_s)

    def _leave(self) -> None:
        self._balancer.enter(-1)

    # ---- replicas

    def add(self, replica: Replica) -> None:
        """Take a replica in; it is ready at once.

        Raises:
            ConfigError: it is here already, is no valid replica, or is one too many.
        """
        _check([*(m.replica for m in self._members.values()), replica])
        self._enrol(replica)
        self._publish()

    def drain(self, url: str) -> None:
        """No new requests for a replica; its leases go on. `update(url, state="ready")` ends it."""
        self.update(url, state="draining")

    def remove(self, url: str) -> None:
        """Forget a replica; its open leases can still be ended.

        Raises:
            KeyError: it is not here.
        """
        member = self._member(url)
        del self._members[member.id]
        self._segment.clear_row(member.slot)
        self._leaving.append(member)
        self._publish()

    def update(
        self,
        url: str,
        *,
        running: float | None = None,
        waiting: float | None = None,
        kv_usage: float | None = None,
        kv_capacity_tokens: int | None = None,
        generation: object = None,
        state: str | None = None,
        weight: float | None = None,
        now_ns: int = 0,
    ) -> None:
        """Say what is known of a replica; what is None stays as it was.

        Args:
            url: the replica's.
            running, waiting: requests in the engine, everybody's; given together they tell the
                load of others.
            kv_usage: ratio of KV memory in use, 0 to 1.
            kv_capacity_tokens: KV memory of the engine.
            generation: any value that changes when the engine restarts (its start time, say):
                another one than before forgets what its cache held and how fast it was.
            state: `ready` and `degraded` take requests; `warming`, `draining`, `drained` and
                `ejected` take none.
            weight: relative speed, 0 or more.
            now_ns: when running and waiting were read.

        Raises:
            KeyError: it is not here.
            ValueError: no such state.
        """
        member = self._member(url)
        if state is not None:
            if state not in STATES:
                raise ValueError(f"state: wanted {state!r}, have {', '.join(STATES)}")
            member.state = state
        if weight is not None and _known(weight):
            member.weight = weight
        if kv_usage is not None:
            member.kv_usage = kv_usage if _known(kv_usage) else math.nan
        if kv_capacity_tokens is not None:
            known = _known(kv_capacity_tokens)
            member.kv_capacity_tokens = int(kv_capacity_tokens) if known else 0
        if generation is not None:
            if member.reported_generation not in (None, generation):
                self._generations[member.slot] += 1
                member.generation = self._generations[member.slot]
                member.foreign_load.reset()  # its load counts afresh
                member.scraped_at_ns = 0
                member.is_followed = False
            member.reported_generation = generation
        self._read_gauges(member, running, waiting, now_ns)
        self._write(member)

    def prefix_keys(self, request: RouteRequest) -> list[int]:
        """The names of the request's prompt blocks in `take_cache`, first to last; none of a
        prompt without a whole block.

        Raises:
            UnknownModel, InvalidRequest: as `route`.
        """
        model, name = self._model_of(request)
        return request.bind(model, name).prefix_keys

    def take_cache(
        self,
        url: str,
        *,
        stored: Iterable[int] = (),
        removed: Iterable[int] = (),
        stored_tokens: int = 0,
    ) -> None:
        """Say what entered and left an engine's prefix cache, whoever sent the requests.

        From the first call on the router counts what enters this cache by these calls, not by
        its own requests; `generation` of `update` begins anew.

        Args:
            url: the replica's.
            stored: keys (`prefix_keys`) of blocks that it has now.
            removed: keys of blocks that it dropped.
            stored_tokens: tokens of all blocks that entered, those without a key included; what
                was used longest ago counts as dropped once a cache full has entered after it.

        Raises:
            KeyError: it is not here.
        """
        member = self._member(url)
        if not member.is_followed:
            member.is_followed = True
            self._write(member)
        member.entered_tokens += stored_tokens
        blocks, member.entered_tokens = divmod(member.entered_tokens, BLOCK_TOKENS)
        self._segment.store_prefixes(member.slot, stored, blocks)
        self._segment.remove_prefixes(member.slot, removed)

    def _read_gauges(
        self, member: _Member, running: float | None, waiting: float | None, now_ns: int
    ) -> None:
        """Load of others: what the engine has beyond ours, smoothed from the second reading on."""
        if running is None and waiting is None:
            return
        if not _known(running) or not _known(waiting):
            member.running = member.waiting = -1
            return
        assert running is not None and waiting is not None
        cell = self._segment.cell(member.slot)
        now = foreign_now(running, waiting, cell["seqs"], cell["decoding"])
        smoothing_s = self.settings["foreign_smoothing_s"]
        member.foreign = member.foreign_load.update(now, now_ns, smoothing_s)
        member.running, member.waiting = int(running), int(waiting)
        member.scraped_at_ns = max(now_ns, 1)

    # ---- the segment

    def _member(self, url: str) -> _Member:
        found = self._members.get(replica_id(normalize(url)))
        if found is None:
            raise KeyError(f"no replica {url}")
        return found

    def _enrol(self, replica: Replica) -> None:
        self._reclaim()
        if not self._free:
            raise ConfigError(f"replicas: at most {MAX_SLOTS}, counting those with open leases")
        slot = self._free.pop()
        self._generations[slot] += 1
        member = _Member(replica, slot, self._generations[slot])
        for model in dict.fromkeys(replica.models):
            number = self._models.setdefault(model, len(self._models) + 1)
            if number >= MAX_MODELS:
                raise ConfigError(f"models: at most {MAX_MODELS - 1}")
            if not self._free_pairs:
                self._free_pairs.append(self._next_pair)
                self._next_pair += 1
            member.pairs[model] = self._free_pairs.pop()
        self._members[member.id] = self._by_slot[slot] = member
        self._balancer.books.set_replica(slot, member.id)
        self._write(member)

    def _reclaim(self) -> None:
        """Slots of removed replicas are free again once nothing is in flight there."""
        for member in [m for m in self._leaving if self._segment.requests(m.slot) == 0]:
            self._leaving.remove(member)
            self._free.insert(0, member.slot)
            self._free_pairs.extend(member.pairs.values())

    def _write(self, member: _Member) -> None:
        own = member.replica
        limit, queue = own.max_concurrency, own.max_queue
        self._segment.write_row(
            member.slot,
            eligible=member.state in ELIGIBLE_STATES,
            generation=member.generation,
            followed=member.is_followed,
            weight=member.weight,
            max_concurrency=self.settings["max_concurrency"] if limit is None else limit,
            max_queue=self.settings["max_queue"] if queue is None else queue,
            running=member.running,
            waiting=member.waiting,
            foreign_seqs=member.foreign.seqs,
            foreign_waiting=member.foreign.waiting,
            kv_usage=member.kv_usage,
            kv_capacity_tokens=member.kv_capacity_tokens,
            scraped_at_ns=member.scraped_at_ns,
        )
        self._balancer.books.forget_view()

    def _publish(self) -> None:
        for model, number in self._models.items():
            serving = [m for m in self._members.values() if model in m.pairs]
            slots = [m.slot for m in serving]
            pairs = [m.pairs[model] for m in serving]
            self._balancer.books.set_model(number, number % MAX_GROUPS, slots, pairs)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value >= 0


def _read_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """All keys of the three sections in one dict, checked like those of a configuration file."""
    problems = Problems()
    found: dict[str, Any] = {}
    known = {name: section for section, kind in SECTIONS.items() for name in fields(kind)}
    for name in given:
        if name not in known:
            problems.unknown(name, known)
    for section, kind in SECTIONS.items():
        own = {name: value for name, value in given.items() if known.get(name) == section}
        found |= _plain(read_section(kind, own, section, problems))
    if problems.lines:
        raise ConfigError(*problems.lines)
    return found


def _plain(section: Routing | Admission | Retry) -> dict[str, Any]:
    return {name: getattr(section, name) for name in fields(type(section))}


def _check(replicas: Sequence[Replica]) -> None:
    """Raises ConfigError for bad or double URLs, bad numbers and too many."""
    parse_replicas(
        [
            {
                "url": r.url,
                "models": list(r.models),
                "weight": r.weight,
                **({} if r.max_concurrency is None else {"max_concurrency": r.max_concurrency}),
                **({} if r.max_queue is None else {"max_queue": r.max_queue}),
            }
            for r in replicas
        ]
    )
