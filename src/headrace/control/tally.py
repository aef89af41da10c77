"""What the control plane counts about its own work: dropped samples, and how long probes took."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any

PROBE_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """Counts by bucket; the last one is +Inf."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def record(self, value: float) -> None:
        """Count one value."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def document(self) -> dict[str, Any]:
        """The histogram in the form in which the segment gives its own."""
        return {"sum": self.sum, "bounds": list(self.bounds), "buckets": list(self.buckets)}


class Tally:
    """Counters since the start of the gateway."""

    def __init__(self) -> None:
        self.bad_samples: Counter[str] = Counter({"engine": 0, "dcgm": 0})
        self.errors: Counter[str] = Counter()  # turns of control loops that failed
        self.probes: dict[tuple[str, str], Histogram] = {}  # (replica, kind)

    def record_probe(self, replica: str, kind: str, seconds: float) -> None:
        """Count one probe that was answered."""
        self.probes.setdefault((replica, kind), Histogram(PROBE_BOUNDS_S)).record(seconds)

    def forget(self, replica: str) -> None:
        """Drop the series of a replica that is gone."""
        for key in [key for key in self.probes if key[0] == replica]:
            del self.probes[key]
