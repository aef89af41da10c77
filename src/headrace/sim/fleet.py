"""The event loop of a simulated fleet: the real Router, engine models, and no real time at all."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from headrace import Lease, NoReplica, Overloaded, Replica, Router
from headrace.mock.engine_model import FINISHED, FIRST_TOKEN, NEVER_NS, TOKENS, Engine
from headrace.mock.presets import PRESETS
from headrace.sim.cache_events import CacheEvents
from headrace.sim.scenario import Event, Replicas, Scenario
from headrace.sim.traffic import BLOCK_TOKENS, MODEL, Ask, Source

# Above so many tokens in all, tokens are booked at the end of each answer instead of step by step.
MOST_DETAILED_TOKENS = 8_000_000
UNLIMITED = 1_000_000
ARRIVE, WAKE, GAUGES, READ, HAPPEN, STATE, AGAIN = range(7)
_Reading = tuple[str, int, int, float]  # URL, running, waiting, KV use


@dataclass
class Outcome:
    """What a run gave; times in seconds, one entry a counted request."""

    ttft_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)
    e2e_s: list[float] = field(default_factory=list)
    started_s: list[float] = field(default_factory=list)
    rejected: int = 0
    lost: int = 0
    finished: int = 0
    attempts: int = 0  # requests sent to replicas, refused ones included
    duration_s: float = 0.0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    requests: list[int] = field(default_factory=list)  # by replica
    busy_ratio: list[float] = field(default_factory=list)
    decisions: dict[str, int] = field(default_factory=dict)


class _Flight:
    """A request on an engine."""

    __slots__ = ("ask", "counted", "first_ns", "generated", "handle", "lease", "replica", "router")

    def __init__(self, ask: Ask, counted: bool, router: int) -> None:
        self.ask, self.counted, self.router = ask, counted, router
        self.first_ns = self.generated = self.handle = 0
        self.replica = -1
        self.lease: Lease | None = None


def _engine(group: Replicas, seed: int, detailed: bool) -> Engine:
    preset = PRESETS[group.preset]
    engine = Engine(
        base_ns=preset.base_ms * 1e6,
        prefill_ns=preset.prefill_us * 1e3,
        decode_ns=preset.decode_us * 1e3,
        context_ns=preset.context_us * 1e3,
        kv_tokens=group.kv_tokens or preset.kv_tokens,
        max_num_seqs=group.max_num_seqs or preset.max_num_seqs,
        max_num_batched_tokens=preset.max_num_batched_tokens,
        noise_ratio=group.noise_ratio,
        seed=seed,
        detailed=detailed,
    )
    if group.slow != 1.0:
        engine.set_slow(0, group.slow)
    return engine


class Fleet:
    """One run: a scenario, a policy, a seed, and the traffic."""

    def __init__(self, scenario: Scenario, policy: str, seed: int, source: Source) -> None:
        self.scenario, self.source = scenario, source
        tokens = scenario.traffic.requests * scenario.traffic.output_tokens
        detailed = tokens <= MOST_DETAILED_TOKENS
        groups = [g for group in scenario.replicas for g in [group] * group.count]
        self.engines = [_engine(g, seed * 1024 + i, detailed) for i, g in enumerate(groups)]
        self.urls = [f"http://replica-{i}:8000" for i in range(len(groups))]
        self.index = {url: i for i, url in enumerate(self.urls)}
        settings = {"max_concurrency": UNLIMITED, "gateways": scenario.gateways, **scenario.router}
        replicas = [Replica(url, models=(MODEL,)) for url in self.urls]
        self.routers = [
            Router(replicas, policy, seed * 64 + n, **settings) for n in range(scenario.gateways)
        ]
        for i, group in enumerate(groups):
            capacity = group.kv_tokens or PRESETS[group.preset].kv_tokens
            for router in self.routers:
                router.update(self.urls[i], kv_capacity_tokens=capacity, generation=1)
        self.rng = random.Random(f"fleet-{seed}")
        self.heap: list[tuple[int, int, int, Any]] = []
        self.order = count()
        self.wakes = [-1] * len(groups)  # order number of the wake-up in force
        self.flights: dict[int, _Flight] = {}
        self.numbers = count(1)
        self.outcome = Outcome(requests=[0] * len(groups))
        self.refusing: set[int] = set()
        self.skipped = int(scenario.warmup_ratio * scenario.traffic.requests)
        self.arrived = 0
        self.ahead: Iterator[Ask] = iter(())
        self.events = CacheEvents(self.routers, self.engines) if scenario.kv_events else None

    # ---- the loop

    def run(self) -> Outcome:
        """Play everything to its end."""
        self.ahead = self.source.start()
        self._next_arrival()
        for event in self.scenario.events:
            self._push(round(event.at_s * 1e9), HAPPEN, event)
        if self.scenario.gauge_interval_s > 0:
            self._push(round(self.scenario.gauge_interval_s * 1e9), GAUGES, None)
        actions: dict[int, Callable[[int, Any], None]] = {
            ARRIVE: self._arrive,
            WAKE: self._wake,
            GAUGES: self._gauges,
            READ: self._read,
            HAPPEN: self._happen,
            STATE: self._state,
            AGAIN: self._again,
        }
        now_ns = 0
        while self.heap:
            now_ns, order, kind, what = heapq.heappop(self.heap)
            if kind == WAKE and self.wakes[what] != order:
                continue
            actions[kind](now_ns, what)
        result = self.outcome
        result.duration_s = now_ns / 1e9
        result.hit_tokens = sum(e.prefix_hits_tokens for e in self.engines)
        result.prompt_tokens = sum(e.prefix_queries_tokens for e in self.engines)
        result.busy_ratio = [e.busy_ns / max(now_ns, 1) for e in self.engines]
        return result

    def _push(self, at_ns: int, kind: int, what: Any) -> int:
        order = next(self.order)
        heapq.heappush(self.heap, (at_ns, order, kind, what))
        return order

    def _next_arrival(self) -> None:
        ask = next(self.ahead, None)
        if ask is not None:
            self._push(ask.at_ns, ARRIVE, (ask, True))

    def _plan_wake(self, i: int) -> None:
        at_ns = self.engines[i].next_event_ns()
        self.wakes[i] = self._push(at_ns, WAKE, i) if at_ns < NEVER_NS else -1

    # ---- requests

    def _arrive(self, now_ns: int, what: tuple[Ask, bool]) -> None:
        ask, scheduled = what
        if scheduled:
            self._next_arrival()
        self.arrived += 1
        router = self.rng.randrange(len(self.routers)) if len(self.routers) > 1 else 0
        flight = _Flight(ask, self.arrived > self.skipped, router)
        try:
            lease = self.routers[router].route(ask.route, now_ns)
        except (Overloaded, NoReplica):
            self.outcome.rejected += flight.counted
            self._follow(ask, now_ns)
            return
        self._send(now_ns, flight, lease)

    def _send(self, now_ns: int, flight: _Flight, lease: Lease) -> None:
        flight.lease, flight.replica = lease, self.index[lease.replica.url]
        engine, ask = self.engines[flight.replica], flight.ask
        self.outcome.attempts += 1
        if not engine.alive or flight.replica in self.refusing:
            self._refused(now_ns, flight, lease)
            return
        number = next(self.numbers)
        self.flights[number] = flight
        self.outcome.requests[flight.replica] += flight.counted
        reasons = self.outcome.decisions
        reasons[lease.reason] = reasons.get(lease.reason, 0) + 1
        self._take(engine.advance(now_ns))
        if self.events is not None:
            self.events.learn(ask)
        flight.handle = engine.submit(
            now_ns, number, ask.prompt_tokens, ask.output_tokens, ask.hashes, BLOCK_TOKENS
        )
        self._plan_wake(flight.replica)

    def _refused(self, now_ns: int, flight: _Flight, lease: Lease) -> None:
        second = self.routers[flight.router].retry(lease, now_ns, "refused")
        if second is None:
            self.outcome.lost += flight.counted
            self._follow(flight.ask, now_ns)
        else:
            self._push(max(now_ns, second.start_at_ns), AGAIN, (flight, second))

    def _again(self, now_ns: int, what: tuple[_Flight, Lease]) -> None:
        self._send(now_ns, *what)

    def _follow(self, ask: Ask, now_ns: int) -> None:
        following = self.source.after(ask, now_ns)
        if following is not None:
            self._push(following.at_ns, ARRIVE, (following, False))

    def _wake(self, now_ns: int, i: int) -> None:
        self._take(self.engines[i].advance(now_ns))
        if self.events is not None:
            self.events.tell(i, self.urls[i])
        self._plan_wake(i)

    def _take(self, events: list[tuple[int, int, int, int]]) -> None:
        for at_ns, kind, number, value in events:
            flight = self.flights[number]
            assert flight.lease is not None
            if kind == TOKENS:
                flight.lease.tokens(at_ns, value - flight.generated)
                flight.generated = value
            elif kind == FIRST_TOKEN:
                flight.first_ns, flight.generated = at_ns, 1
                flight.lease.tokens(at_ns, 1)
            elif kind == FINISHED:
                del self.flights[number]
                if value > flight.generated:
                    flight.lease.tokens(at_ns, value - flight.generated)
                self._finish(at_ns, flight, value)

    def _finish(self, now_ns: int, flight: _Flight, generated: int) -> None:
        ask, out = flight.ask, self.outcome
        usage = {"prompt_tokens": ask.prompt_tokens, "completion_tokens": generated}
        assert flight.lease is not None
        flight.lease.finish(now_ns, usage)
        out.finished += 1
        if flight.counted:
            out.started_s.append(ask.at_ns / 1e9)
            out.ttft_s.append((flight.first_ns - ask.at_ns) / 1e9)
            out.e2e_s.append((now_ns - ask.at_ns) / 1e9)
            if generated > 1:
                out.tpot_s.append((now_ns - flight.first_ns) / 1e9 / (generated - 1))
        self._follow(ask, now_ns)

    # ---- what control would do, and what befalls replicas

    def _gauges(self, now_ns: int, _: None) -> None:
        """A scrape of every engine that lives."""
        if not self.flights and len(self.heap) <= 1:
            return
        readings: list[_Reading] = []
        for i, engine in enumerate(self.engines):
            if not engine.alive:
                continue
            self._take(engine.advance(now_ns))
            usage = engine.kv_usage_ratio(now_ns)
            readings.append((self.urls[i], engine.running_count, engine.waiting_count, usage))
            self._plan_wake(i)
        self._push(now_ns + round(self.scenario.gauge_lag_s * 1e9), READ, readings)
        self._push(now_ns + round(self.scenario.gauge_interval_s * 1e9), GAUGES, None)

    def _read(self, now_ns: int, readings: list[_Reading]) -> None:
        for url, running, waiting, kv_usage in readings:
            for router in self.routers:
                router.update(
                    url, running=running, waiting=waiting, kv_usage=kv_usage, now_ns=now_ns
                )

    def _happen(self, now_ns: int, event: Event) -> None:
        engine, i = self.engines[event.replica], event.replica
        self._take(engine.advance(now_ns))
        detect_ns = round(self.scenario.detect_s * 1e9)
        if event.action == "slow":
            engine.set_slow(now_ns, event.factor)
        elif event.action == "freeze":
            engine.freeze(now_ns)
        elif event.action == "unfreeze":
            engine.unfreeze(now_ns)
        elif event.action == "refuse":
            self.refusing.add(i)
        elif event.action == "accept":
            self.refusing.discard(i)
        elif event.action == "kill":
            for number in engine.kill(now_ns):
                self._lose(now_ns, self.flights.pop(number))
            self._push(now_ns + detect_ns, STATE, (i, "ejected"))
        else:
            engine.restart(now_ns)
            self._push(now_ns + detect_ns, STATE, (i, "ready"))
        self._plan_wake(i)

    def _lose(self, now_ns: int, flight: _Flight) -> None:
        assert flight.lease is not None
        flight.lease.fail(now_ns, "cut")
        self.outcome.lost += flight.counted
        self._follow(flight.ask, now_ns)

    def _state(self, now_ns: int, what: tuple[int, str]) -> None:
        i, state = what
        generation = self.engines[i].generation + 1
        for router in self.routers:
            router.update(self.urls[i], state=state, generation=generation, now_ns=now_ns)
