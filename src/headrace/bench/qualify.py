"""The four numbers to know about one replica before any architecture, and what they say.

Single-request TTFT, single-request tokens per second, throughput at ten at once, and the largest
batch that still fits. A batch fits if every request of it has its first token before any of them
ends: none had to wait for another's place.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from statistics import median
from typing import Any

from headrace.bench.load import Run, Target
from headrace.bench.samples import Sample
from headrace.bench.summary import Objective, summarise
from headrace.bench.workload import Job, Lengths, synthetic

SINGLE_REQUESTS = 5
CONCURRENT = 10
BATCH_LIMIT = 2048
BATCH_PRECISION_RATIO = 0.1

# Ten at once should carry several times what one does: decoding is bound by memory, not by sums.
COLLAPSE_FACTOR = 3.0

Batch = Callable[[int], Awaitable[bool]]


async def qualify(
    target: Target, lengths: Lengths, slo_ttft_s: float, seed: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Measure a replica; raises RuntimeError if even single requests fail."""
    jobs = synthetic(random.Random(seed), lengths)
    tell("one at a time")
    single = await _run(target, islice(jobs, SINGLE_REQUESTS + 1), 1)
    samples = single.record.samples[1:]  # the first one warms up
    if bad := [s.error for s in samples if s.error]:
        raise RuntimeError(f"single requests fail: {bad[0]}")
    tell(f"{CONCURRENT} at once")
    together = await _run(target, islice(jobs, 3 * CONCURRENT), CONCURRENT)
    tell("largest batch")
    max_batch = await largest_batch(lambda n: _fits(target, jobs, n, tell))
    found = {
        "ttft_s": median(s.ttft_s or 0.0 for s in samples),
        "tokens_per_s": median(map(tokens_per_s, samples)),
        "throughput_at_10": _throughput(together),
        "max_batch": max_batch,
        "max_batch_is_lower_bound": max_batch >= BATCH_LIMIT,
    }
    verdict, why = judge(found, slo_ttft_s)
    return {**found, "verdict": verdict, "why": why}


def tokens_per_s(sample: Sample) -> float:
    """Decoding speed of one request; its whole time counts if there was one token only."""
    if tpot_s := sample.tpot_s:
        return 1 / tpot_s
    return sample.output_tokens / sample.e2e_s if sample.e2e_s else 0.0


def _throughput(run: Run) -> dict[str, Any]:
    summary = summarise(run, Objective())
    return {
        "tokens_per_s": summary["output_tokens_per_s"],
        "ttft_p95_s": summary["ttft_s"]["p95"],
        "failed": summary["requests"]["failed"] + summary["requests"]["rejected"],
    }


async def _run(target: Target, jobs: Iterator[Job], concurrency: int) -> Run:
    async with Run(target).open() as run:
        await run.closed_loop(jobs, concurrency, until_s=float("inf"))
    return run


async def _fits(
    target: Target, jobs: Iterator[Job], size: int, tell: Callable[[str], None]
) -> bool:
    run = await _run(target, islice(jobs, size), size)
    samples = run.record.samples
    fits = batch_fits(samples)
    tell(f"batch of {size}: {'fits' if fits else 'does not fit'}")
    return fits


def batch_fits(samples: list[Sample]) -> bool:
    """Whether all requests of a batch, sent at once, were under way together."""
    if any(s.error for s in samples):
        return False
    last_first_token_s = max(s.first_token_s or 0.0 for s in samples)
    return last_first_token_s <= min(s.end_s or 0.0 for s in samples)


async def largest_batch(fits: Batch, limit: int = BATCH_LIMIT) -> int:
    """Double the batch until it does not fit, then bisect to 10 %; 0 if not even one fits."""
    low, high = 0, 1
    while high <= limit and await fits(high):
        low, high = high, 2 * high
    if high > limit:
        return low
    while high - low > max(1, BATCH_PRECISION_RATIO * low):
        middle = (low + high) // 2
        if await fits(middle):
            low = middle
        else:
            high = middle
    return low


def judge(found: dict[str, Any], slo_ttft_s: float) -> tuple[str, list[str]]:
    """`stay on one card` or `go multi-replica`, and the reasons with their numbers."""
    against = []
    together, single = found["throughput_at_10"], found["tokens_per_s"]
    if found["ttft_s"] > slo_ttft_s:
        against.append(
            f"a single request waits {found['ttft_s']:.2f} s for its first token, above "
            f"{slo_ttft_s:g} s: more replicas do not cure that, a faster card or a split model does"
        )
    if together["failed"]:
        against.append(f"{together['failed']} of {3 * CONCURRENT} requests failed at ten at once")
    elif together["ttft_p95_s"] > slo_ttft_s:
        against.append(
            f"at ten at once P95 TTFT is {together['ttft_p95_s']:.2f} s, above {slo_ttft_s:g} s"
        )
    if together["tokens_per_s"] < COLLAPSE_FACTOR * single:
        against.append(
            f"throughput collapses: {together['tokens_per_s']:.0f} tokens/s at ten at once is less "
            f"than {COLLAPSE_FACTOR:g} × the {single:.0f} of one"
        )
    if found["max_batch"] < CONCURRENT:
        against.append(f"a batch of {found['max_batch']} is all that fits at this length")
    if against:
        return "go multi-replica", against
    return "stay on one card", [
        f"ten at once get {together['tokens_per_s']:.0f} tokens/s with P95 TTFT "
        f"{together['ttft_p95_s']:.2f} s, and {found['max_batch']} fit together"
    ]
