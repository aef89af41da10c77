"""Workloads after those of the policy study: the same names, coefficients and intentions."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from .run import BLOCK_TOKENS, Fault, Job, Scenario

H100 = {
    "base_ms": 6.5,
    "prefill_us": 28.0,
    "decode_us": 25.0,
    "context_us": 0.055,
    "kv_tokens": 384_000,
}
A10 = {
    "base_ms": 24.0,
    "prefill_us": 230.0,
    "decode_us": 100.0,
    "context_us": 1.1,
    "kv_tokens": 13_600,
}
SMALL = {**H100, "kv_tokens": 56_000}
SLOWER = {name: value * (1 if name == "kv_tokens" else 2.5) for name, value in H100.items()}


def capacity_per_s(
    engine: dict[str, float], prompt: float, output: float, uncached: float | None = None
) -> float:
    """Requests per second of an engine that is never idle: prefill, and a share of full batches."""
    batch = min(256.0, engine["kv_tokens"] / (prompt + output / 2))
    context = prompt + output / 2
    token_ms = (
        engine["base_ms"] / batch + (engine["decode_us"] + engine["context_us"] * context) / 1e3
    )
    prefill_ms = engine["prefill_us"] * (prompt if uncached is None else uncached) / 1e3
    return 1e3 / (prefill_ms + output * token_ms)


def lengths(rng: random.Random, mean: float, spread: float, most: int) -> int:
    """A lognormal length with this mean."""
    return max(1, min(most, int(rng.lognormvariate(math.log(mean) - spread * spread / 2, spread))))


class Blocks:
    """Ids of blocks that no other prompt has."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def fresh(self, tokens: int) -> tuple[int, ...]:
        """As many as that many tokens fill."""
        return tuple(self.rng.getrandbits(63) for _ in range(tokens // BLOCK_TOKENS))


def poisson(
    rng: random.Random, n: int, rate: Callable[[float], float], job: Callable[[], Job]
) -> Iterator[tuple[float, Job]]:
    """n arrivals at a rate that may change with time."""
    now = 0.0
    for _ in range(n):
        now += rng.expovariate(rate(now))
        yield now, job()


def chat(
    rng: random.Random, blocks: Blocks, prompt: float, output: float, most: int = 16_000
) -> Callable[[], Job]:
    """Jobs without anything in common."""

    def job() -> Job:
        p, o = lengths(rng, prompt, 0.8, most), lengths(rng, output, 0.8, 1500)
        return Job(p, o, blocks.fresh(p + o))

    return job


def with_prefix(
    rng: random.Random,
    blocks: Blocks,
    prefixes: list[tuple[int, ...]],
    weights: list[float],
    own: float,
    output: float,
) -> Callable[[], Job]:
    """Jobs that begin with one of some long prefixes."""

    def job() -> Job:
        prefix = rng.choices(prefixes, weights)[0]
        q, o = lengths(rng, own, 0.6, 2000), lengths(rng, output, 0.6, 800)
        p = len(prefix) * BLOCK_TOKENS + q
        return Job(p, o, prefix + blocks.fresh(q + o))

    return job


def slow(seed: int, n: int) -> Scenario:
    """One of four at half speed, 75 % load."""
    rng = random.Random(seed)
    rate = 0.75 * 3.5 * capacity_per_s(H100, 800, 200)
    job = chat(rng, Blocks(seed), 800, 200)
    return Scenario(
        [H100] * 4,
        poisson(rng, n, lambda t: rate, job),
        faults=[Fault(0, 0, slow=2.0)],
        warm_up=n // 5,
    )


def mid_slow(seed: int, n: int) -> Scenario:
    """The same, from the middle on."""
    scenario = slow(seed, n)
    rate = 0.75 * 3.5 * capacity_per_s(H100, 800, 200)
    scenario.faults = [Fault(n / rate / 2, 0, slow=2.0)]
    return scenario


def a10(seed: int, n: int) -> Scenario:
    """Three small cards, bound by KV memory."""
    rng = random.Random(seed)
    rate = 0.7 * 3 * capacity_per_s(A10, 300, 150)
    job = chat(rng, Blocks(seed), 300, 150, 3000)
    return Scenario([A10] * 3, poisson(rng, n, lambda t: rate, job), warm_up=n // 5)


def shared(seed: int, n: int, count: int, hot: float, prefix_tokens: int, rate: float) -> Scenario:
    """Eight replicas whose caches hold a part of the prefixes each."""
    rng, blocks = random.Random(seed), Blocks(seed)
    prefixes = [blocks.fresh(prefix_tokens) for _ in range(count)]
    weights = [hot, *[(1 - hot) / (count - 1)] * (count - 1)] if hot else [1.0] * count
    job = with_prefix(rng, blocks, prefixes, weights, 150, 120)
    return Scenario([SMALL] * 8, poisson(rng, n, lambda t: rate, job), warm_up=n // 5)


def sys(seed: int, n: int) -> Scenario:
    """Twenty system prompts of 4,000 tokens."""
    return shared(seed, n, 20, 0, 4032, 140)


def hot(seed: int, n: int) -> Scenario:
    """One of 41 prefixes in 40 % of the requests."""
    return shared(seed, n, 41, 0.4, 4032, 120)


def crash(seed: int, n: int) -> Scenario:
    """One of eight dies for 30 s and comes back cold."""
    scenario = shared(seed, n, 40, 0, 2048, 110)
    scenario.faults = [Fault(n / 110 / 4, 0, down_s=min(30, n / 110 / 3))]
    return scenario


def multi(seed: int, n: int) -> Scenario:
    """Two hundred growing chats on sixteen replicas."""
    rng, blocks = random.Random(seed), Blocks(seed)

    def talk() -> Iterator[tuple[float, Job]]:
        own = random.Random(rng.getrandbits(64))
        while True:
            session = f"{own.getrandbits(64):x}"
            history = list(blocks.fresh(lengths(own, 800, 0.5, 4000)))
            for _ in range(own.randint(4, 14)):
                asked, answered = lengths(own, 150, 0.6, 1500), lengths(own, 200, 0.7, 1000)
                prompt = len(history) * BLOCK_TOKENS + asked
                history += blocks.fresh(asked + answered)
                job = Job(prompt, answered, tuple(history), session)
                yield own.expovariate(1 / 4.0), job

    return Scenario([SMALL] * 16, users=[talk() for _ in range(200)], requests=n, warm_up=n // 5)


def burst(seed: int, n: int) -> Scenario:
    """Calm and bursts in turns, prompts from 100 to 32,000 tokens."""
    rng, blocks = random.Random(seed), Blocks(seed)
    rate = 0.65 * 8 * capacity_per_s(H100, 2000, 200)

    def job() -> Job:
        p = int(
            math.exp(rng.uniform(math.log(100), math.log(32_000)) * 0.75 + 0.25 * math.log(500))
        )
        o = lengths(rng, 200, 0.8, 1500)
        return Job(p, o, blocks.fresh(p + o))

    return Scenario(
        [H100] * 8,
        poisson(rng, n, lambda t: rate * (2.2 if t % 20 < 5 else 0.6), job),
        warm_up=n // 5,
    )


def hetero(seed: int, n: int) -> Scenario:
    """Two fast replicas, six that are 2.5 times slower."""
    rng = random.Random(seed)
    rate = 0.7 * (2 + 6 / 2.5) * capacity_per_s(H100, 800, 200)
    job = chat(rng, Blocks(seed), 800, 200)
    return Scenario([H100] * 2 + [SLOWER] * 6, poisson(rng, n, lambda t: rate, job), warm_up=n // 5)


TRACE: Path | None = None  # the Azure 2023 chat trace; set by whoever has it


def azure(seed: int, n: int) -> Scenario:
    """The Azure 2023 chat trace, compressed to 80 % of four replicas; another part each seed."""
    if TRACE is None:
        raise FileNotFoundError(
            "scenario azure: wanted --azure FILE, the csv of the 2023 conversation trace"
        )
    blocks, jobs = Blocks(seed), []
    with TRACE.open() as f:
        rows = list(csv.DictReader(f))
        start = seed * 5003 % (len(rows) - n)
        for row in rows[start : start + n]:
            at = datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            p, o = int(row["ContextTokens"]), max(1, int(row["GeneratedTokens"]))
            jobs.append((at, Job(max(p, 1), o, blocks.fresh(p + o))))
    mean_p = sum(j.prompt_tokens for _, j in jobs) / len(jobs)
    mean_o = sum(j.output_tokens for _, j in jobs) / len(jobs)
    wanted = 0.8 * 4 * capacity_per_s(H100, mean_p, mean_o)
    scale = len(jobs) / (jobs[-1][0] - jobs[0][0]) / wanted
    return Scenario(
        [H100] * 4, iter([((at - jobs[0][0]) * scale, job) for at, job in jobs]), warm_up=n // 5
    )


SCENARIOS: dict[str, Callable[[int, int], Scenario]] = {
    "slow": slow,
    "mid-slow": mid_slow,
    "a10": a10,
    "sys": sys,
    "hot": hot,
    "multi": multi,
    "burst": burst,
    "hetero": hetero,
    "azure": azure,
    "crash": crash,
}
