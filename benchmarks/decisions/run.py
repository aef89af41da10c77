"""One run: arrivals meet a Router, the Router meets engine models; out come times to first token.

Nothing here knows how a policy decides. A request's answer is told to its lease token by token, as
a gateway would; prompt lengths reach the router with an error, output lengths not at all.
"""

from __future__ import annotations

import heapq
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace import Replica, Router, RouteRequest
from headrace.mock.engine_model import FINISHED, FIRST_TOKEN, TOKENS, Engine

S = 1_000_000_000
BLOCK_TOKENS = 64
ESTIMATE_ERROR = 0.2  # standard deviation of the logarithm
RESTART_S = 1e-3


@dataclass(slots=True)
class Job:
    """A request: `blocks` are chained ids of the prompt's 64-token blocks, answer blocks after."""

    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    session: str | None = None


@dataclass(slots=True)
class Fault:
    """At `at_s` replica `replica` gets `slow` times slower, or dies (`down_s` > 0) for a while."""

    at_s: float
    replica: int
    slow: float = 1.0
    down_s: float = 0.0


@dataclass
class Scenario:
    """Engines (coefficients in ms, µs and tokens), arrivals and faults.

    `arrivals` gives (time in s, job), in order; `users` instead are closed loops: each element is
    one chat, an iterator of (pause in s, job).
    """

    engines: list[dict[str, float]]
    arrivals: Iterator[tuple[float, Job]] = field(default_factory=lambda: iter(()))
    users: list[Iterator[tuple[float, Job]]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    requests: int = 0  # of the closed loops, in all
    warm_up: int = 0  # requests that are not counted


@dataclass
class Result:
    """Times to first token in seconds, and the requests each replica got."""

    ttft_s: list[float] = field(default_factory=list)
    per_replica: list[int] = field(default_factory=list)
    hit_ratio: float = 0.0

    def percentile(self, q: float) -> float:
        """The q-th percentile of TTFT."""
        ordered = sorted(self.ttft_s)
        return ordered[min(len(ordered) - 1, int(q / 100 * len(ordered)))]


def engine(
    base_ms: float, prefill_us: float, decode_us: float, context_us: float, kv_tokens: float
) -> Engine:
    """An engine model with every step visible."""
    return Engine(
        base_ns=base_ms * 1e6,
        prefill_ns=prefill_us * 1e3,
        decode_ns=decode_us * 1e3,
        context_ns=context_us * 1e3,
        kv_tokens=int(kv_tokens),
        detailed=True,
    )


class Run:
    """The event loop of one scenario, policy and seed."""

    def __init__(self, scenario: Scenario, policy: str, seed: int, **settings: object) -> None:
        self.scenario = scenario
        self.error = random.Random(seed)
        self.engines = [engine(**e) for e in scenario.engines]
        self.urls = [f"http://replica-{i}:8000" for i in range(len(self.engines))]
        # Nothing is refused: the study looks at choices, not at admission.
        self.router = Router(
            [Replica(url, max_concurrency=1_000_000) for url in self.urls],
            policy,
            seed,
            prefix_table_bytes=8 << 20,
            **settings,
        )
        for url, e in zip(self.urls, scenario.engines, strict=True):
            self.router.update(url, kv_capacity_tokens=int(e["kv_tokens"]), generation=0)
        self.place = {url: i for i, url in enumerate(self.urls)}
        self.events: list[tuple[int, int, str, object]] = []
        self.serial = 0
        self.open: dict[int, list] = {}  # id -> [lease, job, arrival, number]
        self.began = 0
        self.result = Result(per_replica=[0] * len(self.engines))
        self.last_at = [0] * len(self.engines)

    def at(self, when_ns: int, kind: str, what: object) -> None:
        """Something happens later; of two things at one time the first told comes first."""
        self.serial += 1
        heapq.heappush(self.events, (when_ns, self.serial, kind, what))

    def run(self) -> Result:
        """Until all is answered."""
        for fault in self.scenario.faults:
            self.at(int(fault.at_s * S), "fault", fault)
        for user in self.scenario.users:
            self._next_turn(user, 0)
        self._next_arrival()
        dues = [e.next_event_ns() for e in self.engines]
        while self.events or self.open:
            due = min(dues)
            if self.events and self.events[0][0] <= due:
                now, _, kind, what = heapq.heappop(self.events)
                touched = getattr(self, "_" + kind)(now, what)
            else:
                now, touched = due, dues.index(due)
                self._progress(touched, now)
            for i in range(len(dues)) if touched is None else (touched,):
                dues[i] = self.engines[i].next_event_ns()
        queries = sum(e.prefix_queries_tokens for e in self.engines)
        hits = sum(e.prefix_hits_tokens for e in self.engines)
        self.result.hit_ratio = hits / queries if queries else 0.0
        return self.result

    # ---- events: each returns the engine whose state changed, None for several

    def _next_arrival(self) -> None:
        found = next(self.scenario.arrivals, None)
        if found is not None:
            self.at(int(found[0] * S), "arrive", found[1])

    def _next_turn(self, user: Iterator[tuple[float, Job]], now: int) -> None:
        if self.began < self.scenario.requests:
            found = next(user, None)
            if found is not None:
                self.at(now + int(found[0] * S), "turn", (user, found[1]))

    def _arrive(self, now: int, job: Job) -> int | None:
        self._next_arrival()
        return self._send(job, now, now, None)

    def _turn(self, now: int, what: tuple) -> int | None:
        return self._send(what[1], now, now, what[0])

    def _again(self, now: int, what: tuple) -> int | None:
        return self._send(*what[:2], now, *what[2:])

    def _send(self, job: Job, arrived: int, now: int, user: object, number: int = -1) -> int:
        if number < 0:
            number = self.began
            self.began += 1
        error = self.error.lognormvariate(0, ESTIMATE_ERROR)
        prompt_blocks = job.blocks[: job.prompt_tokens // BLOCK_TOKENS]
        request = RouteRequest(
            "m",
            prompt_tokens=job.prompt_tokens * error,
            prefix=prompt_blocks,
            session=job.session,
        )
        lease = self.router.route(request, now)
        i = self.place[lease.replica.url]
        self.serial += 1
        self.open[self.serial] = [lease, job, arrived, number, user]
        self.result.per_replica[i] += 1
        self.engines[i].submit(
            now,
            self.serial,
            job.prompt_tokens,
            job.output_tokens,
            array("Q", job.blocks).tobytes(),
            BLOCK_TOKENS,
        )
        return i

    def _progress(self, i: int, now: int) -> None:
        for when, kind, serial, value in self.engines[i].advance(now):
            entry = self.open[serial]
            if kind == TOKENS:
                entry[0].tokens(when)
            elif kind == FIRST_TOKEN:
                entry[0].tokens(when)
                if entry[3] >= self.scenario.warm_up:
                    self.result.ttft_s.append((when - entry[2]) / S)
            elif kind == FINISHED:
                del self.open[serial]
                entry[0].finish(
                    when, {"prompt_tokens": entry[1].prompt_tokens, "completion_tokens": value}
                )
                if entry[4] is not None:
                    self._next_turn(entry[4], when)

    def _fault(self, now: int, fault: Fault) -> None:
        e, url = self.engines[fault.replica], self.urls[fault.replica]
        if not fault.down_s:
            e.set_slow(now, fault.slow)
            return
        self._progress(fault.replica, now)  # what it had answered before
        lost = e.kill(now)
        self.router.update(url, state="ejected")
        for serial in lost:  # clients come again at once
            lease, job, arrived, number, user = self.open.pop(serial)
            lease.fail(now, "reset")
            if lease.taken.first_ns == 0:
                self.at(now + int(RESTART_S * S), "again", (job, arrived, user, number))
            elif user is not None:
                self._next_turn(user, now)
        self.at(now + int(fault.down_s * S), "back", fault.replica)

    def _back(self, now: int, i: int) -> None:
        self.engines[i].restart(now)
        self.router.update(self.urls[i], state="ready", generation=self.engines[i].generation)
