"""Why an SLO cannot be kept: which term of the sum breaks it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.plan.demand import Slo, Traffic
from headrace.plan.deployment import Split
from headrace.plan.latency import latency_at
from headrace.plan.names import PlanError
from headrace.plan.steplaw import StepLaw

# A rate at which nobody meets anybody.
_LONELY_PER_S = 1e-6


class NoSplit(PlanError):
    """The cards asked for cannot hold one replica."""


class SloImpossible(PlanError):
    """No number of replicas keeps the SLO; the message names the term that breaks it."""


def impossible(slo: Slo, traffic: Traffic, tried: Sequence[tuple[Split, StepLaw]]) -> SloImpossible:
    """The error for an SLO that none of the splits keeps even for a lone request."""
    lonely = [
        (split, law, latency)
        for split, law in tried
        if (latency := latency_at(law, traffic.at(_LONELY_PER_S), slo.percentile))
    ]
    if not lonely:
        _, law = tried[-1]
        return SloImpossible(
            f"not one request of {traffic.input_tokens:.0f} + {traffic.output_tokens:.0f} tokens "
            f"fits the KV cache of {law.kv_capacity_tokens} tokens on {_cards(tried[-1][0])}"
        )
    split, law, latency = min(lonely, key=lambda t: t[2].tpot_s)
    if slo.tpot_s is not None and latency.tpot_s > slo.tpot_s:
        return SloImpossible(_tpot_reason(slo.tpot_s, latency.tpot_s, law, traffic, _cards(split)))
    split, law, latency = min(lonely, key=lambda t: t[2].ttft_s)
    if slo.ttft_s is not None and latency.ttft_s > slo.ttft_s:
        return SloImpossible(_ttft_reason(slo.ttft_s, latency.ttft_s, law, traffic, _cards(split)))
    return SloImpossible("no split keeps --slo-ttft and --slo-tpot together at any rate")


def _cards(split: Split) -> str:
    return f"{split.gpus} card{'s' * (split.gpus > 1)} (tp {split.tp}, pp {split.pp})"


def _tpot_reason(wanted: float, had: float, law: StepLaw, traffic: Traffic, cards: str) -> str:
    parts = {
        "reading the weights, communication and overhead of one step": law.base_s,
        f"reading the KV cache of {traffic.context_tokens:.0f} tokens": (
            law.per_context_token_s * traffic.context_tokens
        ),
        "one more sequence": law.per_sequence_s,
    }
    return _worst("--slo-tpot", wanted, had, parts, cards)


def _ttft_reason(wanted: float, had: float, law: StepLaw, traffic: Traffic, cards: str) -> str:
    parts = {
        f"prefill of {traffic.uncached_tokens:.0f} tokens": (
            law.per_prefill_token_s * traffic.uncached_tokens
        ),
        "the step under way and the fixed part of one's own": 2 * law.base_s,
    }
    return _worst("--slo-ttft", wanted, had, parts, cards)


def _worst(flag: str, wanted: float, had: float, parts: dict[str, float], cards: str) -> str:
    name, seconds = max(parts.items(), key=lambda item: item[1])
    return (
        f"{flag} {wanted:g} s cannot be kept even for a lone request: "
        f"{had * 1e3:.1f} ms on {cards}, of which {name}: {seconds * 1e3:.1f} ms"
    )
