"""Traffic from a trace or a log: how many requests, how long, how much of them seen before.

The forms are those of `headrace.bench.traces`: Mooncake jsonl, Azure csv, our own access log.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev

import msgspec
import orjson

from headrace.bench.traces import TraceError, read
from headrace.bench.workload import Request
from headrace.plan.demand import Traffic
from headrace.plan.names import PlanError

# Windows of this length are compared; the fleet is planned for all but the busiest 5 % of them.
WINDOW_S = 60.0
_BUSY_PERCENTILE = 0.95


def read_traffic(path: Path) -> Traffic:
    """Rate, lengths and prefix hits of the requests in a file.

    Raises PlanError for a file that cannot be read, is of unknown form, has a bad line (by its
    number), or holds no requests.
    """
    try:
        requests = list(read(path))
    except (TraceError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: {error}", param="trace") from error
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}", param="trace") from error
    if not requests:
        raise PlanError(f"{path}: no requests in it", param="trace")
    if not all(math.isfinite(request.at_s) for request in requests):
        raise PlanError(f"{path}: a time that is no number", param="trace")
    traffic = traffic_of(requests)
    return msgspec.structs.replace(
        traffic, hit_ratio=max(traffic.hit_ratio, logged_hit_ratio(path))
    )


def traffic_of(requests: Sequence[Request]) -> Traffic:
    """The figures of these requests, the rate being that of a busy minute."""
    inputs = [max(1, request.job.prompt_tokens) for request in requests]
    outputs = [max(1, request.job.output_tokens) for request in requests]
    return Traffic(
        rate_per_s=busy_rate_per_s([request.at_s for request in requests]),
        input_tokens=fmean(inputs),
        output_tokens=fmean(outputs),
        input_cv=pstdev(inputs) / fmean(inputs),
        output_cv=pstdev(outputs) / fmean(outputs),
        hit_ratio=hit_ratio(requests),
    )


def hit_ratio(requests: Sequence[Request]) -> float:
    """Share of prompt tokens that an earlier prompt began with: hits of an endless cache."""
    seen: set[int] = set()
    hits = total = 0
    for request in requests:
        prompt = request.job.prompt
        for segment in prompt:
            if segment.key not in seen:
                break
            hits += segment.tokens
        seen.update(segment.key for segment in prompt)
        total += request.job.prompt_tokens
    return hits / total if total else 0.0


def logged_hit_ratio(path: Path) -> float:
    """Share of prompt tokens that the engines found cached, where an access log says so; else 0."""
    cached = total = 0
    with path.open(encoding="utf-8-sig") as file:
        rows = (orjson.loads(line) for line in file if '"cached_tokens"' in line)
        for row in rows:
            if row["cached_tokens"] is not None and row.get("prompt_tokens"):
                cached += int(row["cached_tokens"])
                total += int(row["prompt_tokens"])
    return min(1.0, cached / total) if total else 0.0


def busy_rate_per_s(times_s: Sequence[float]) -> float:
    """The 95th percentile of the rates of all whole minutes.

    The mean where the trace is shorter than two minutes or most of its minutes are empty.
    """
    first, last = min(times_s), max(times_s)
    span_s = last - first
    mean = len(times_s) / span_s if span_s > 0 else 0.0
    windows = int(span_s // WINDOW_S)
    if windows < 2:
        return mean
    counts = Counter(int((t - first) // WINDOW_S) for t in times_s)
    busy = sorted(n for window, n in counts.items() if window < windows)
    empty = windows - len(busy)  # not listed: a trace may span years
    place = math.ceil(_BUSY_PERCENTILE * windows) - 1 - empty
    return busy[place] / WINDOW_S if place >= 0 else mean
