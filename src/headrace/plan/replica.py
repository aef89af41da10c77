"""What one replica of a given split is, holds and serves."""

from __future__ import annotations

import msgspec

from headrace.plan.deployment import Deployment, Split
from headrace.plan.latency import capacity_per_s
from headrace.plan.memory import (
    DEFAULT_UTILIZATION,
    Memory,
    default_max_num_seqs,
    safe_utilization,
)
from headrace.plan.question import Ask
from headrace.plan.queueing import saturation_rate_per_s
from headrace.plan.roofline import decode_step_s, prefill_s
from headrace.plan.steplaw import StepLaw, law_of

# Ten is the number of the second signal; the others show the shape of the curve.
_SHOWN_BATCHES = (1, 4, 10, 16, 64, 256)


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a plan: what it is, what it holds, what it serves."""

    deployment: Deployment
    memory: Memory
    law: StepLaw
    prefill_s: float  # of one mean prompt on an idle replica
    single_step_s: float  # TPOT of a lone stream
    saturation_per_s: float
    capacity_per_s: float  # highest rate within SLO and utilisation ceiling

    @property
    def split(self) -> Split:
        """How it is cut over cards."""
        return self.deployment.split


def deployment_for(ask: Ask, split: Split) -> Deployment:
    """The replica that the question means, cut that way."""
    across = split.tp > ask.gpus_per_host
    one_host = split.gpus <= ask.gpus_per_host
    return Deployment(
        model=ask.model,
        gpu=ask.gpu,
        split=split,
        weights_dtype=ask.weights_dtype,
        kv_dtype=ask.kv_dtype,
        tensor_link=ask.between if across else ask.inside,
        stage_link=ask.inside if one_host else ask.between,
        efficiency=ask.efficiency,
    )


def replica_of(ask: Ask, deployment: Deployment, memory: Memory) -> Replica:
    """What one replica gives to the traffic of the question."""
    traffic = ask.traffic
    # Long prompts have most of the attention; uncached tokens look back on the cached ones.
    prompt_tokens = traffic.input_tokens * (1 + traffic.input_cv**2) * (1 + traffic.hit_ratio)
    law = msgspec.structs.replace(
        law_of(deployment, max(1, round(traffic.context_tokens)), prompt_tokens),
        kv_capacity_tokens=memory.kv_capacity_tokens,
        max_num_seqs=safe_max_num_seqs(ask, memory),
    )
    return Replica(
        deployment=deployment,
        memory=memory,
        law=law,
        prefill_s=prefill_s(deployment, traffic.uncached_tokens, law.batched_tokens),
        single_step_s=decode_step_s(deployment, 1, traffic.context_tokens),
        saturation_per_s=saturation_rate_per_s(law, traffic),
        capacity_per_s=capacity_per_s(law, traffic, ask.slo, ask.max_utilization),
    )


def safe_max_num_seqs(ask: Ask, memory: Memory) -> int:
    """`--max-num-seqs` at which the KV cache holds every sequence at its full mean length.

    At most what vLLM takes by itself, at least one.
    """
    traffic = ask.traffic
    length = traffic.input_tokens * (1 - traffic.shared_ratio) + traffic.output_tokens
    fit = int(memory.kv_capacity_tokens / max(1.0, length))
    return max(1, min(default_max_num_seqs(ask.gpu), fit))


def advised_utilization(ask: Ask, memory: Memory) -> float:
    """`--gpu-memory-utilization` to start with: the default, or what the plan had to assume."""
    return max(memory.utilization, min(DEFAULT_UTILIZATION, safe_utilization(ask.gpu)))


def batch_steps(replica: Replica, ask: Ask) -> list[tuple[int, float]]:
    """Batches from one sequence to the largest, with the seconds of their decode step."""
    most = replica.law.max_num_seqs
    sizes = sorted({n for n in _SHOWN_BATCHES if n < most} | {most})
    context = ask.traffic.context_tokens
    return [(n, decode_step_s(replica.deployment, n, context)) for n in sizes]
