"""The step-time law of an engine, derived from the roofline.

    step = base + a · prefill tokens + b · decoding sequences + c · context tokens

The queueing model of the planner works on it, and the presets of the mock engine and of the
simulator come from it, so that all of them speak of the same machine.
"""

from __future__ import annotations

import msgspec

from headrace.plan.gpus import Gpu
from headrace.plan.links import DEFAULT_NETWORK, LINKS, Link
from headrace.plan.memory import Split, default_batched_tokens, default_max_num_seqs, memory_of
from headrace.plan.models import Model, head_params
from headrace.plan.roofline import (
    DEFAULT_EFFICIENCY,
    Efficiency,
    Machine,
    all_reduce_s,
    attention_flops,
    compute_s,
    crossover_batch,
    flops_per_token,
    kv_read_s,
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


def machine_of(
    gpu: Gpu, split: Split, inside: Link | None = None, between: Link | None = None
) -> Machine:
    """The hardware of a replica; tensor-parallel inside the machine, stages across machines."""
    return Machine(
        gpu=gpu,
        split=split,
        tensor_link=inside or LINKS[gpu.link],
        stage_link=between or LINKS[DEFAULT_NETWORK],
    )


def step_law(
    model: Model,
    gpu: Gpu,
    tp: int = 1,
    pp: int = 1,
    weights_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    *,
    context_tokens: int = DEFAULT_CONTEXT_TOKENS,
    prompt_tokens: float = 0,
    machine: Machine | None = None,
    efficiency: Efficiency = DEFAULT_EFFICIENCY,
    utilization: float | None = None,
) -> StepLaw:
    """The law of one replica of `model` on `tp` × `pp` cards.

    `kv_capacity_tokens` is 0 when the weights do not fit. Prompts of `prompt_tokens` put their
    share of quadratic attention into the cost of a prefill token. `machine` replaces the card's
    own links.
    """
    machine = machine or machine_of(gpu, Split(tp, pp))
    split = machine.split
    memory = memory_of(
        model,
        gpu,
        split,
        weights_dtype,
        kv_dtype,
        context_tokens=context_tokens,
        utilization=utilization,
    )
    return StepLaw(
        base_s=_base_s(model, machine, weights_dtype, efficiency),
        per_prefill_token_s=_per_prefill_token_s(
            model, machine, weights_dtype, efficiency, prompt_tokens
        ),
        per_sequence_s=_per_sequence_s(model, machine, weights_dtype, efficiency),
        per_context_token_s=kv_read_s(model, machine, kv_dtype, context_tokens, efficiency)
        / context_tokens
        / split.pp,
        kv_capacity_tokens=memory.kv_capacity_tokens,
        max_num_seqs=default_max_num_seqs(gpu),
        batched_tokens=default_batched_tokens(gpu),
    )


def _base_s(model: Model, machine: Machine, dtype: str, efficiency: Efficiency) -> float:
    read_s = weight_read_s(model, machine, dtype, _LAW_BATCH, efficiency)
    talk_s = all_reduce_s(model, machine, 1) + stage_send_s(model, machine, 1)
    return read_s + talk_s + machine.split.pp * efficiency.step_s


def _per_prefill_token_s(
    model: Model, machine: Machine, dtype: str, efficiency: Efficiency, prompt_tokens: float
) -> float:
    flops = flops_per_token(model)
    if prompt_tokens >= 1:
        flops += attention_flops(model, prompt_tokens) / prompt_tokens
    math_s = compute_s(model, machine, flops, dtype, efficiency)
    many = 1024.0  # a slope: the latency of the calls belongs to the base
    talk_s = (all_reduce_s(model, machine, many) - all_reduce_s(model, machine, 0)) / many
    bubble = pipeline_bubble_ratio(machine.split.pp, _PIPELINE_MICROBATCHES)
    return (math_s + talk_s) / machine.split.pp / (1 - bubble)


def _per_sequence_s(model: Model, machine: Machine, dtype: str, efficiency: Efficiency) -> float:
    """Slope of the chord from an empty batch to twice the crossover under max(read, compute).

    A dense model's roofline is flat up to the crossover n* and then rises by the compute time of a
    token; the chord to 2n* has half of that slope and is exact at both ends. A mixture of experts
    also reads more of its experts on the way, which is in the same chord.
    """
    reach = max(2.0 * _LAW_BATCH, 2 * crossover_batch(model, machine, dtype, efficiency))
    per_token = flops_per_token(model) + 2.0 * head_params(model)
    math_s = compute_s(model, machine, per_token, dtype, efficiency) * reach
    far_s = max(weight_read_s(model, machine, dtype, reach, efficiency), math_s)
    near_s = weight_read_s(model, machine, dtype, _LAW_BATCH, efficiency)
    return (far_s - near_s) / reach / machine.split.pp + efficiency.sequence_s
