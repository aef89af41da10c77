"""The step-time law of an engine, derived from the roofline.

    step = base + a · prefill tokens + b · decoding sequences + c · context tokens

The queueing model of the planner works on it, and the presets of the mock engine and of the
simulator come from it, so that all of them speak of the same machine.
"""

from __future__ import annotations

import msgspec

from headrace.plan.deployment import Deployment, Split, deployment_of
from headrace.plan.gpus import Gpu
from headrace.plan.memory import default_batched_tokens, default_max_num_seqs, memory_of
from headrace.plan.models import Model
from headrace.plan.roofline import (
    all_reduce_s,
    attention_flops,
    compute_s,
    crossover_batch,
    decoded_token_s,
    flops_per_token,
    kv_read_s,
    overhead_s,
    pipeline_bubble_ratio,
    stage_send_s,
    weight_read_s,
)

# Chunks that keep a pipeline of stages busy while prompts come one after the other.
_PIPELINE_MICROBATCHES = 4

# Context at which the KV cost of a token is taken; it matters for sliding windows only.
DEFAULT_CONTEXT_TOKENS = 2048

# Batch at which the law takes the share of experts that a step reads. A step of a busy replica has
# prompts or dozens of sequences in it, which touch most experts; a lone stream is faster than the
# law says (see `roofline.decode_step_s`).
_LAW_BATCH = 64


class StepLaw(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of the law, seconds, and the two limits of the batch.

    `batched_tokens` bounds decoding sequences plus prefill tokens of one step.
    """

    base_s: float
    per_prefill_token_s: float
    per_sequence_s: float
    per_context_token_s: float
    kv_capacity_tokens: int
    max_num_seqs: int
    batched_tokens: int = 8192

    def step_s(
        self, prefill_tokens: float = 0, sequences: float = 0, context_tokens: float = 0
    ) -> float:
        """Seconds of one step with that much in it."""
        return (
            self.base_s
            + self.per_prefill_token_s * prefill_tokens
            + self.per_sequence_s * sequences
            + self.per_context_token_s * context_tokens
        )


def step_law(
    model: Model,
    gpu: Gpu,
    tp: int = 1,
    pp: int = 1,
    weights_dtype: str = "bf16",
    kv_dtype: str = "bf16",
) -> StepLaw:
    """The law of one replica of `model` on `tp` × `pp` cards with their own links.

    `kv_capacity_tokens` is 0 when the weights do not fit.
    """
    return law_of(deployment_of(model, gpu, Split(tp, pp), weights_dtype, kv_dtype))


def law_of(
    replica: Deployment,
    context_tokens: int = DEFAULT_CONTEXT_TOKENS,
    prompt_tokens: float = 0,
) -> StepLaw:
    """The law of one replica.

    Prompts of `prompt_tokens` put their share of quadratic attention into the cost of a token.
    """
    context_s = kv_read_s(replica, context_tokens) / context_tokens
    return StepLaw(
        base_s=_base_s(replica),
        per_prefill_token_s=_per_prefill_token_s(replica, prompt_tokens),
        per_sequence_s=_per_sequence_s(replica),
        per_context_token_s=context_s / replica.split.pp,
        kv_capacity_tokens=memory_of(replica, context_tokens).kv_capacity_tokens,
        max_num_seqs=default_max_num_seqs(replica.gpu),
        batched_tokens=default_batched_tokens(replica.gpu),
    )


def _base_s(replica: Deployment) -> float:
    talk_s = all_reduce_s(replica, 1) + stage_send_s(replica, 1)
    return weight_read_s(replica, _LAW_BATCH) + talk_s + overhead_s(replica)


def _per_prefill_token_s(replica: Deployment, prompt_tokens: float) -> float:
    flops = flops_per_token(replica.model)
    if prompt_tokens >= 1:
        flops += attention_flops(replica.model, prompt_tokens) / prompt_tokens
    many = 1024.0  # a slope: the latency of the calls belongs to the base
    talk_s = (all_reduce_s(replica, many) - all_reduce_s(replica, 0)) / many
    bubble = pipeline_bubble_ratio(replica.split.pp, _PIPELINE_MICROBATCHES)
    return (compute_s(replica, flops) + talk_s) / replica.split.pp / (1 - bubble)


def _per_sequence_s(replica: Deployment) -> float:
    """Slope of the chord from an empty batch to twice the crossover under max(read, compute).

    A dense model's roofline is flat up to the crossover n* and then rises by the compute time of a
    token; the chord to 2n* has half of that slope and is exact at both ends. A mixture of experts
    also reads more of its experts on the way, which is in the same chord.
    """
    reach = max(2.0 * _LAW_BATCH, 2 * crossover_batch(replica))
    far_s = max(weight_read_s(replica, reach), reach * decoded_token_s(replica))
    near_s = weight_read_s(replica, _LAW_BATCH)
    return (far_s - near_s) / reach / replica.split.pp + replica.efficiency.sequence_s
