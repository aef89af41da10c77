"""Replaces the assumed efficiencies by what `headrace bench qualify` measured on one replica."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import orjson

from headrace.plan.deployment import Deployment, Efficiency
from headrace.plan.names import PlanError
from headrace.plan.roofline import (
    all_reduce_s,
    compute_s,
    decode_step_s,
    overhead_s,
    prompt_flops,
)

# Beyond these the file is not of this model and card.
_LEAST_RATIO, _MOST_RATIO = 0.02, 1.0
_ROUNDS = 20


class Measured(msgspec.Struct, frozen=True):
    """What a qualification says: seconds to the first token and tokens a second of a lone request,
    and tokens a second of ten at once together (None where the file lacks it)."""

    ttft_s: float
    tokens_per_s: float
    tokens_per_s_at_10: float | None


def read_measured(path: Path) -> Measured:
    """The figures in that file.

    Raises PlanError when it cannot be read or lacks a figure (which it names).
    """
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}", param="measured") from error
    except orjson.JSONDecodeError as error:
        raise PlanError(f"{path}: no JSON: {error}", param="measured") from error
    if not isinstance(document, dict):
        raise PlanError(f"{path}: not an output of `bench qualify --json`", param="measured")
    ten = document.get("throughput_at_10")
    return Measured(
        _figure(path, document, "ttft_s"),
        _figure(path, document, "tokens_per_s"),
        _figure(path, ten, "tokens_per_s") if isinstance(ten, dict) else None,
    )


def _figure(path: Path, document: dict[str, Any], key: str) -> float:
    value = document.get(key)
    if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise PlanError(f"{path}: {key} must be a number above 0, got {value!r}", param="measured")
    return float(value)


def efficiency_from(
    measured: Measured, replica: Deployment, input_tokens: float, output_tokens: float
) -> Efficiency:
    """The efficiencies at which the roofline gives what was measured with prompts of that length.

    A lone stream fixes the bandwidth, the first token the compute, ten streams the cost of a
    further sequence. Raises PlanError when the measurement is beyond what the card could do.
    """
    context = input_tokens + output_tokens / 2
    replica = _with(replica, compute_ratio=_solve_compute(replica, input_tokens, measured.ttft_s))
    for _ in range(_ROUNDS):  # one stream and ten streams each hold a little of the other's figure
        bandwidth = _solve_bandwidth(replica, context, 1 / measured.tokens_per_s)
        replica = _with(replica, bandwidth_ratio=bandwidth)
        if measured.tokens_per_s_at_10 is None:
            break
        extra_s = (10 / measured.tokens_per_s_at_10 - decode_step_s(replica, 10, context)) / 10
        sequence_s = max(0.0, replica.efficiency.sequence_s + extra_s)
        replica = _with(replica, sequence_s=sequence_s)
    return replica.efficiency


def _with(replica: Deployment, **changes: float) -> Deployment:
    efficiency = msgspec.structs.replace(replica.efficiency, **changes)
    return msgspec.structs.replace(replica, efficiency=efficiency)


def _solve_bandwidth(replica: Deployment, context: float, wanted_s: float) -> float:
    """All of a lone step but overhead and communication is reading, which goes as 1/ratio."""
    ideal = _with(replica, bandwidth_ratio=1.0, compute_ratio=1.0)
    fixed_s = overhead_s(replica) + replica.efficiency.sequence_s + all_reduce_s(replica, 1)
    reading_s = decode_step_s(ideal, 1, context) - fixed_s
    return _checked("tokens_per_s", reading_s / max(1e-9, wanted_s - fixed_s))


def _solve_compute(replica: Deployment, prompt: float, ttft_s: float) -> float:
    """All of a lone first token but overhead and communication is computing."""
    ideal = _with(replica, compute_ratio=1.0)
    ideal_s = compute_s(ideal, prompt_flops(replica.model, prompt))
    fixed_s = overhead_s(replica) + all_reduce_s(replica, prompt)
    return _checked("ttft_s", ideal_s / max(1e-9, ttft_s - fixed_s))


def _checked(key: str, ratio: float) -> float:
    if not _LEAST_RATIO <= ratio <= _MOST_RATIO:
        raise PlanError(
            f"--measured: {key} means {ratio:.0%} of what the card can do; is it of this model, "
            "card, split and --input-tokens?",
            param="measured",
        )
    return ratio
