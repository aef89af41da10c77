"""Reads traffic from a trace or a log: how many requests, how long, how much of them shared.

Three forms, told apart by content: Mooncake jsonl (`timestamp` in ms, `input_length`,
`output_length`, `hash_ids` of 512-token blocks), Azure csv (`TIMESTAMP,ContextTokens,
GeneratedTokens`), and our own access log in JSON lines.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import msgspec
import orjson

from headrace.plan.names import PlanError
from headrace.plan.queueing import Traffic

MOONCAKE_BLOCK_TOKENS = 512

# Windows of this length are compared; the fleet is planned for all but the busiest 5 % of them.
WINDOW_S = 60.0
_BUSY_PERCENTILE = 0.95


class Sample(msgspec.Struct, frozen=True):
    """One request of a trace. `cached_tokens` None: the trace does not tell."""

    at_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int | None = None


def read_traffic(path: Path) -> Traffic:
    """Rate, lengths and prefix hits of the requests in a file.

    Raises PlanError for a file of unknown form, without requests, or with a bad line (by its
    number).
    """
    samples = read_samples(path)
    if not samples:
        raise PlanError(f"{path}: no requests in it", param="trace")
    return traffic_of(samples)


def traffic_of(samples: Sequence[Sample]) -> Traffic:
    """The figures of these requests, the rate being that of a busy minute."""
    inputs = [s.input_tokens for s in samples]
    outputs = [s.output_tokens for s in samples]
    cached = [s.cached_tokens for s in samples if s.cached_tokens is not None]
    return Traffic(
        rate_per_s=busy_rate_per_s([s.at_s for s in samples]),
        input_tokens=fmean(inputs),
        output_tokens=fmean(outputs),
        input_cv=pstdev(inputs) / fmean(inputs),
        output_cv=pstdev(outputs) / fmean(outputs),
        hit_ratio=min(1.0, sum(cached) / sum(inputs)) if cached else 0.0,
    )


def busy_rate_per_s(times_s: Sequence[float]) -> float:
    """The 95th percentile of the rates of all whole minutes; the mean of a shorter trace."""
    first, last = min(times_s), max(times_s)
    span_s = last - first
    windows = int(span_s // WINDOW_S)
    if windows < 2:
        return len(times_s) / span_s if span_s > 0 else 0.0
    counts = Counter(int((t - first) // WINDOW_S) for t in times_s)
    rates = sorted(counts[n] / WINDOW_S for n in range(windows))
    return rates[math.ceil(_BUSY_PERCENTILE * windows) - 1]


def read_samples(path: Path) -> list[Sample]:
    """All requests of a file, in its order."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: cannot be read: {error}", param="trace") from error
    lines = text.splitlines()
    head = next((line for line in lines if line.strip()), "")
    if head.startswith("TIMESTAMP,"):
        return list(_azure(path, lines))
    if head.lstrip().startswith("{"):
        return list(_json_lines(path, lines))
    raise PlanError(
        f"{path}: neither Mooncake jsonl, nor Azure csv, nor an access log", param="trace"
    )


def _azure(path: Path, lines: list[str]) -> Iterator[Sample]:
    for number, row in enumerate(csv.DictReader(lines), start=2):
        try:
            # The trace has seven digits of a second; datetime takes six.
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            yield _sample(at.timestamp(), row["ContextTokens"], row["GeneratedTokens"])
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_line(path, number, error) from error


def _json_lines(path: Path, lines: list[str]) -> Iterator[Sample]:
    seen: set[int] = set()
    read: Callable[[dict[str, Any]], Sample | None] | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
            if read is None:
                read = (lambda r: _mooncake(r, seen)) if "input_length" in row else _access_log
            sample = read(row)
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_line(path, number, error) from error
        if sample is not None:
            yield sample


def _mooncake(row: dict[str, Any], seen: set[int]) -> Sample:
    """A row; its blocks that an earlier row had count as cached (a cache without bound)."""
    blocks = row.get("hash_ids") or []
    known = 0
    for block in blocks:
        if block not in seen:
            break
        known += 1
    seen.update(blocks)
    cached = min(known * MOONCAKE_BLOCK_TOKENS, int(row["input_length"]))
    at_s = float(row["timestamp"]) / 1e3
    return _sample(at_s, row["input_length"], row["output_length"], cached)


def _access_log(row: dict[str, Any]) -> Sample | None:
    """A line of our access log; None for one without token counts (refused, cut, not a model's)."""
    prompt = row.get("prompt_tokens") or row.get("estimated_prompt_tokens")
    output = row.get("completion_tokens")
    if not prompt or output is None:
        return None
    cached = row.get("cached_tokens")
    return _sample(float(row["time"]), prompt, output, None if cached is None else int(cached))


def _sample(at_s: float, prompt: Any, output: Any, cached: int | None = None) -> Sample:
    sample = Sample(at_s, max(1, int(prompt)), max(1, int(output)), cached)
    if not math.isfinite(at_s):
        raise ValueError(f"time {at_s}")
    return sample


def _bad_line(path: Path, number: int, error: Exception) -> PlanError:
    what = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
    return PlanError(f"{path}: line {number}: {what}", param="trace")
