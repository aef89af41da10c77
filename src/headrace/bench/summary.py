"""Figures of a finished run, as the document that `--json` prints."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.bench.load import Run
from headrace.bench.samples import Sample

QUANTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}

# Above these the rig, not the server, may be what was measured.
BUSY_RATIO = 0.7
LATE_P99_S = 0.010


@dataclass(frozen=True)
class Objective:
    """What a user would call fast enough; None: not asked for."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def met(self, sample: Sample) -> bool:
        """Whether an answer is complete and within the objective."""
        return (
            sample.ok
            and _within(sample.ttft_s, self.ttft_s)
            and _within(sample.tpot_s, self.tpot_s)
        )


def _within(value: float | None, limit: float | None) -> bool:
    return limit is None or value is None or value <= limit


def distribution(values: Iterable[float | None]) -> dict[str, float | None]:
    """Mean, percentiles and maximum; all None without values."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return dict.fromkeys(["mean", *QUANTILES, "max"])
    # quantiles() wants two values
    cuts = statistics.quantiles(known * 2 if len(known) == 1 else known, n=100, method="inclusive")
    percentiles = {name: cuts[percent - 1] for name, percent in QUANTILES.items()}
    return {"mean": statistics.fmean(known), **percentiles, "max": known[-1]}


def summarise(run: Run, objective: Objective, warmup_requests: int = 0) -> dict[str, Any]:
    """The measured figures of a run; latencies without the first so many requests."""
    samples = run.record.samples
    ok = [s for s in samples if s.ok]
    counted = [s for s in sorted(samples, key=lambda s: s.due_s)[warmup_requests:] if s.ok]
    rejected = sum(s.rejected for s in samples)
    duration_s = max(run.duration_s, 1e-9)
    return {
        "requests": {
            "sent": run.record.sent,
            "ok": len(ok),
            "failed": len(samples) - len(ok) - rejected,
            "rejected": rejected,
        },
        "warmup_requests": warmup_requests,
        "duration_s": run.duration_s,
        "requests_per_s": len(ok) / duration_s,
        "ttft_s": distribution(s.ttft_s for s in counted),
        "tpot_s": distribution(s.tpot_s for s in counted),
        "itl_s": distribution(run.record.itl_s),
        "e2e_s": distribution(s.e2e_s for s in counted),
        "input_tokens_per_s": sum(s.prompt_tokens for s in ok) / duration_s,
        "output_tokens_per_s": sum(s.output_tokens for s in ok) / duration_s,
        "prefix_hit_ratio": hit_ratio(ok),
        "goodput_per_s": sum(map(objective.met, ok)) / duration_s,
        "slo": {"ttft_s": objective.ttft_s, "tpot_s": objective.tpot_s},
        "per_replica": per_replica(samples),
        "errors": dict(Counter(s.error for s in samples if s.error)),
        "rig": rig_share(run),
    }


def hit_ratio(samples: Sequence[Sample]) -> float | None:
    """Cached prompt tokens to all, over the answers that told; None if none did."""
    told = [s for s in samples if s.cached_tokens is not None]
    total = sum(s.prompt_tokens for s in told)
    return sum(s.cached_tokens or 0 for s in told) / total if total else None


def per_replica(samples: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """Requests and median TTFT of each replica that the gateway named."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.replica:
            found.setdefault(sample.replica, []).append(sample)
    return {
        name: {
            "requests": len(of_replica),
            "ttft_p50_s": distribution(s.ttft_s for s in of_replica)["p50"],
        }
        for name, of_replica in sorted(found.items())
    }


def rig_share(run: Run) -> dict[str, Any]:
    """How busy the load harness itself was, and how late it sent."""
    cpu_ratio = run.cpu_s / run.duration_s if run.duration_s else 0.0
    late_p99_s = distribution(s.sent_s - s.due_s for s in run.record.samples)["p99"]
    return {"cpu_ratio": cpu_ratio, "late_p99_s": late_p99_s}


def warnings(summary: dict[str, Any]) -> list[str]:
    """What makes the figures doubtful."""
    found = []
    rig = summary["rig"]
    if rig["cpu_ratio"] > BUSY_RATIO:
        found.append(
            f"the load harness used {rig['cpu_ratio']:.0%} of a core: it may be the bottleneck; "
            "start several at once, each with a part of the rate"
        )
    if (rig["late_p99_s"] or 0) > LATE_P99_S:
        found.append(
            f"requests were sent up to {rig['late_p99_s'] * 1000:.0f} ms late (p99); "
            "latencies count from the time they were due"
        )
    if "client_files" in summary["errors"]:
        found.append("out of open files: raise the limit (ulimit -n)")
    return found
