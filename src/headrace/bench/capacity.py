"""Finds the knee: the highest rate at which P99 TTFT still holds its objective."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

SAFE_RATIO = 0.8
LOST_RATIO = 0.01  # more failed or refused requests than this is over capacity too
PRECISION_RATIO = 0.1
MAX_STEPS = 20

Measure = Callable[[float], Awaitable[dict[str, Any]]]


@dataclass
class Capacity:
    """The highest rate that held (None: not even the first), and every step taken."""

    rate: float | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        safe_rate = None if self.rate is None else self.rate * SAFE_RATIO
        return {"rate": self.rate, "safe_rate": safe_rate, "steps": self.steps}


def holds(summary: dict[str, Any], slo_ttft_s: float) -> bool:
    """Whether a run kept the objective and lost next to nothing."""
    requests = summary["requests"]
    lost = requests["failed"] + requests["rejected"]
    p99 = summary["ttft_s"]["p99"]
    return p99 is not None and p99 <= slo_ttft_s and lost <= LOST_RATIO * requests["sent"]


async def find(measure: Measure, start_rate: float, slo_ttft_s: float) -> Capacity:
    """Double the rate until it breaks (or halve it until it holds), then bisect to 10 %.

    `measure(rate)` runs a load and returns its summary.
    """
    capacity = Capacity()
    low, high = 0.0, float("inf")
    rate = start_rate
    while len(capacity.steps) < MAX_STEPS and high - low > PRECISION_RATIO * low:
        summary = await measure(rate)
        held = holds(summary, slo_ttft_s)
        capacity.steps.append(_step(rate, held, summary))
        if held:
            low = rate
        else:
            high = rate
        if high == float("inf"):
            rate = 2 * low
        elif low == 0.0:
            rate = high / 2
            if rate < start_rate / 64:
                break
        else:
            rate = (low * high) ** 0.5
    capacity.rate = low or None
    return capacity


def _step(rate: float, held: bool, summary: dict[str, Any]) -> dict[str, Any]:
    return {
        "rate": rate,
        "held": held,
        "requests_per_s": summary["requests_per_s"],
        "ttft_p50_s": summary["ttft_s"]["p50"],
        "ttft_p99_s": summary["ttft_s"]["p99"],
        "tpot_p50_s": summary["tpot_s"]["p50"],
        "output_tokens_per_s": summary["output_tokens_per_s"],
    }
