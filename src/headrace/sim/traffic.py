"""Traffic of a scenario as prepared requests, equal for every policy of a seed."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Protocol

from headrace import RouteRequest
from headrace.bench import arrivals, traces, workload
from headrace.bench.workload import Chats, Job, Lengths, Prefixes, Segment, Users
from headrace.sim.scenario import Crowd, Scenario, ScenarioError, Traffic

BLOCK_TOKENS = 64
MASK = (1 << 64) - 1
MODEL = "m"
TRACE_SUFFIXES = (".csv", ".jsonl", ".log")
COPY_SPREAD_S = 60.0  # copies of a trace begin at some time within it


class Ask:
    """One request, ready for router and engine. Times in ns, lengths in tokens."""

    __slots__ = ("at_ns", "hashes", "output_tokens", "prompt_tokens", "route", "user")

    def __init__(
        self, at_ns: int, job: Job, estimate: float, *, answer_key: int | None, user: int = -1
    ) -> None:
        self.at_ns = at_ns
        self.prompt_tokens = max(1, job.prompt_tokens)
        self.output_tokens = max(1, job.output_tokens)
        self.user = user
        keys = _keys(job.prompt)
        whole = keys
        if answer_key is not None:
            answer = Segment(answer_key, self.output_tokens, "assistant")
            whole = _keys((*job.prompt, answer))
        self.hashes = whole.tobytes()
        self.route = RouteRequest(
            MODEL,
            prompt_tokens=max(1.0, estimate),
            prefix=keys,
            session=job.session,
            max_tokens=None,
        )


def _keys(prompt: tuple[Segment, ...]) -> array[int]:
    return array("Q", [key & MASK or 1 for key in workload.block_keys(prompt, BLOCK_TOKENS)])


class Source(Protocol):
    """Where requests come from: some at the start, and perhaps one more after each end."""

    def start(self) -> Iterator[Ask]:
        """Requests whose times are known beforehand, in order."""
        ...

    def after(self, ask: Ask, now_ns: int) -> Ask | None:
        """The request that follows the end of another (closed loop)."""
        ...


class Open:
    """Requests that come whatever the fleet does; prepared once, used for every policy."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        error = random.Random(f"estimate-{seed}")
        sigma = scenario.estimate_error
        self.asks = [
            Ask(
                round(request.at_s * 1e9),
                request.job,
                request.job.prompt_tokens * error.lognormvariate(0.0, sigma),
                answer_key=None,
            )
            for request in islice(requests_of(scenario.traffic, seed), scenario.traffic.requests)
        ]

    def start(self) -> Iterator[Ask]:
        return iter(self.asks)

    def after(self, ask: Ask, now_ns: int) -> None:
        return None


class Talks:
    """Users in a closed loop; for one run."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.users = users_of(scenario.traffic, seed)
        self.sigma = scenario.estimate_error

    def start(self) -> Iterator[Ask]:
        return iter([self._ask(user, request) for user, request in self.users.start()])

    def after(self, ask: Ask, now_ns: int) -> Ask | None:
        following = self.users.after(ask.user, now_ns / 1e9)
        return None if following is None else self._ask(ask.user, following)

    def _ask(self, user: int, request: workload.Request) -> Ask:
        job = request.job
        error = self.users.rngs[user].lognormvariate(0.0, self.sigma)
        answer = self.users.answers[user]
        return Ask(
            round(request.at_s * 1e9),
            job,
            job.prompt_tokens * error,
            answer_key=answer.key,
            user=user,
        )


def users_of(traffic: Traffic, seed: int) -> Users:
    """The users of a scenario of chats."""
    lengths = Lengths(traffic.input_tokens, traffic.output_tokens, traffic.spread)
    chats = Chats(traffic.users, traffic.turns)
    return Users(seed, lengths, chats, traffic.think_s, traffic.requests)


def source_of(scenario: Scenario, seed: int) -> Source:
    """The traffic of a seed; an open one may be used again, chats are for one run."""
    if scenario.traffic.dataset == "chats":
        return Talks(scenario, seed)
    return Open(scenario, seed)


def requests_of(traffic: Traffic, seed: int) -> Iterator[workload.Request]:
    """The requests of an open scenario as they are, endless where they are generated."""
    if is_trace(traffic):
        return _recorded(Path(traffic.dataset), traffic, seed)
    if traffic.rate is None or traffic.rate <= 0:
        raise ScenarioError("traffic.rate: needed, above 0, for generated traffic")
    if traffic.arrivals not in arrivals.NAMES:
        raise ScenarioError(f"traffic.arrivals: {traffic.arrivals!r}; have {arrivals.NAMES}")
    duration_s = traffic.requests / traffic.rate
    times = arrivals.make(
        traffic.arrivals, traffic.rate, random.Random(f"arrivals-{seed}"), duration_s
    )
    if traffic.crowd is not None:
        times = crowded(times, traffic.crowd)
    return workload.schedule(times, _jobs(traffic, random.Random(seed)))


def is_trace(traffic: Traffic) -> bool:
    """Whether requests are read from a file rather than generated."""
    path = Path(traffic.dataset)
    return path.suffix in TRACE_SUFFIXES or path.is_file()


def crowded(times: Iterable[float], crowd: Crowd) -> Iterator[float]:
    """The same arrivals, closer together while the crowd is there."""
    busy_s = crowd.until_s - crowd.at_s
    for time_s in times:
        if time_s <= crowd.at_s:
            yield time_s
        elif time_s <= crowd.at_s + busy_s * crowd.factor:
            yield crowd.at_s + (time_s - crowd.at_s) / crowd.factor
        else:
            yield time_s - busy_s * (crowd.factor - 1)


def _jobs(traffic: Traffic, rng: random.Random) -> Iterator[Job]:
    lengths = Lengths(traffic.input_tokens, traffic.output_tokens, traffic.spread)
    if traffic.dataset == "synthetic":
        return workload.synthetic(rng, lengths)
    if traffic.dataset == "shared-prefix" and traffic.hot_ratio:
        return _hot(traffic, lengths, rng)
    if traffic.dataset == "shared-prefix":
        prefixes = Prefixes(traffic.prefixes, traffic.prefix_tokens, traffic.zipf)
        return workload.shared_prefix(rng, lengths, prefixes)
    if traffic.dataset == "multi-turn":
        return workload.multi_turn(rng, lengths, Chats(traffic.users, traffic.turns))
    if traffic.dataset == "mixed":
        return _mixed(traffic, lengths, rng)
    raise ScenarioError(f"traffic.dataset: no such data set or file: {traffic.dataset!r}")


def _hot(traffic: Traffic, lengths: Lengths, rng: random.Random) -> Iterator[Job]:
    """One prefix in a fixed share of the requests, the others equally often in the rest."""
    systems = [
        Segment(rng.getrandbits(63), traffic.prefix_tokens, "system")
        for _ in range(traffic.prefixes)
    ]
    while True:
        hot = rng.random() < traffic.hot_ratio
        system = systems[0] if hot else rng.choice(systems[1:])
        input_tokens, output_tokens = lengths.draw(rng)
        yield Job((system, Segment(rng.getrandbits(63), input_tokens)), output_tokens)


def _mixed(traffic: Traffic, lengths: Lengths, rng: random.Random) -> Iterator[Job]:
    """Prompts from 100 tokens to the longest, each length class as likely as the next."""
    while True:
        _, output_tokens = lengths.draw(rng)
        tokens = round(100 * (traffic.longest_tokens / 100) ** rng.random() ** 2)
        yield Job((Segment(rng.getrandbits(63), tokens),), output_tokens)


def _recorded(path: Path, traffic: Traffic, seed: int) -> Iterator[workload.Request]:
    if not path.is_file():
        raise ScenarioError(f"traffic.dataset: no such file: {path} (sim: --trace FILE)")
    rows = list(islice(traces.read(path), -(-traffic.requests // traffic.copies)))
    copies = traffic.copies
    if traffic.rate is not None:
        own_rate = workload.mean_rate_per_s(rows) * copies
        rows = list(workload.accelerate(rows, traffic.rate / own_rate))
    if copies == 1:
        return iter(rows)
    rng = random.Random(f"copies-{seed}")
    return merge(*(_copy(rows, n, rng.uniform(0, COPY_SPREAD_S)) for n in range(copies)), key=_due)


def _due(request: workload.Request) -> float:
    return request.at_s


def _copy(rows: list[workload.Request], number: int, late_s: float) -> Iterator[workload.Request]:
    """The requests of other users: later, and equal to nobody else's."""
    for at_s, job in rows:
        prompt = tuple(s._replace(key=hash((number, s.key))) for s in job.prompt)
        yield workload.Request(at_s + late_s, job._replace(prompt=prompt))
