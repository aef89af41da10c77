"""Fifteen minutes of the five numbers: TTFT, TPOT, queue depth, prefix-cache hits, GPU use.

A sample is taken every few seconds from the segment that the metrics page reads too; percentiles
are those of the last minute, so that a page opened now shows what users feel now.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.control.loop import Control

STEP_S = 5.0
POINTS = 180  # 15 minutes
WINDOW = 12  # samples: percentiles look back a minute


def percentile(bounds: Sequence[float], counts: Sequence[int], q: float) -> float | None:
    """The q-quantile of a histogram by linear interpolation inside its bucket; None when empty.

    `counts` are per bucket, not cumulative; the last one is +Inf and answers with the last bound.
    """
    total = sum(counts)
    if total <= 0:
        return None
    rank = q * total
    below = 0.0
    for i, count in enumerate(counts):
        if count and below + count >= rank:
            if i >= len(bounds):
                return bounds[-1]
            low = bounds[i - 1] if i else 0.0
            return low + (bounds[i] - low) * (rank - below) / count
        below += count
    return bounds[-1]


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what is known; None when nothing is."""
    known = [v for v in values if v is not None and not math.isnan(v)]
    return sum(known) / len(known) if known else None


class _Sample:
    """Cumulative figures at one moment."""

    def __init__(self, control: Control) -> None:
        registry = control.registry
        totals = control.segment.totals(
            list(registry.pairs.by_name.values()), list(registry.model_ids.by_name.values())
        )
        self.ttft: list[int] = totals["ttft"]["buckets"]
        self.tpot: list[int] = totals["tpot"]["buckets"]
        self.requests: int = totals["requests"]
        self.bounds = {name: totals[name]["bounds"] for name in ("ttft", "tpot")}


def _since(now: list[int], before: list[int]) -> list[int]:
    """Counts of an interval."""
    return [max(a - b, 0) for a, b in zip(now, before, strict=True)]


class History:
    """The rolling window behind the dashboard and `headrace top`."""

    def __init__(self) -> None:
        self.samples: deque[_Sample] = deque(maxlen=WINDOW + 1)
        names = ("ttft", "tpot", "queue", "hits", "gpu")
        self.lines: dict[str, deque[float | None]] = {n: deque(maxlen=POINTS) for n in names}
        self.rate = 0.0

    def sample(self, control: Control) -> None:
        """Take one sample; call it every STEP_S."""
        now = _Sample(control)
        before = self.samples[0] if self.samples else now
        self.samples.append(now)
        for name in ("ttft", "tpot"):
            counts = _since(getattr(now, name), getattr(before, name))
            self.lines[name].append(percentile(now.bounds[name], counts, 0.95))
        span_s = STEP_S * max(len(self.samples) - 1, 1)
        self.rate = max(now.requests - before.requests, 0) / span_s
        rows = [control.segment.row(m.slot) or {} for m in control.registry.members.values()]
        waiting = sum(max(row.get("waiting", -1), 0) for row in rows)
        self.lines["queue"].append(float(waiting + control.queued()))
        self.lines["hits"].append(mean([row.get("hit_ratio") for row in rows]))
        gpus = [g.util for m in control.registry.members.values() for g in m.gpus]
        self.lines["gpu"].append(mean(gpus))

    def last(self, name: str) -> float | None:
        """The newest point of a line."""
        line = self.lines[name]
        return line[-1] if line else None


# title, line, unit, warn above, bad above, note
NUMBERS: tuple[tuple[str, str, str, float | None, float | None, str], ...] = (
    ("TTFT p95", "ttft", "seconds", 1.0, 3.0, "time to the first token, last minute"),
    ("TPOT p95", "tpot", "seconds", 0.05, 0.1, "time per output token, last minute"),
    ("Queue depth", "queue", "plain", 8.0, 64.0, "waiting in engines and here"),
    ("Prefix hits", "hits", "percent", None, None, "prompt tokens found in cache"),
    ("GPU use", "gpu", "percent", 0.95, None, "alone it says little"),
)


def numbers(history: History) -> list[dict[str, Any]]:
    """The five numbers as the page and the terminal show them."""
    shown = []
    for title, line, unit, warn, bad, note in NUMBERS:
        value = history.last(line)
        level = ""
        if value is not None and (warn is not None or bad is not None):
            level = "good"
            if warn is not None and value > warn:
                level = "warn"
            if bad is not None and value > bad:
                level = "bad"
        shown.append(
            {
                "title": title,
                "value": value,
                "unit": unit,
                "level": level,
                "note": note,
                "history": list(history.lines[line]),
            }
        )
    return shown
