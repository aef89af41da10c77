"""How long one engine step takes, from the sheets: compute, memory and communication.

Prefill is bound by compute, decode by memory until the batch is large enough; see
`docs/planning.md` for the formulas and where the efficiencies come from.
"""

from __future__ import annotations

import math

import msgspec

from headrace.plan.gpus import Gpu
from headrace.plan.links import LINK_EFFICIENCY, Link
from headrace.plan.memory import (
    Split,
    kv_bytes_per_sequence,
    kv_shard_ratio,
    read_bytes,
)
from headrace.plan.models import Model, head_params, matmul_params
from headrace.plan.precision import WIDE_BYTES

ALL_REDUCES_PER_LAYER = 2  # after attention and after the MLP (Megatron-LM)


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """What is reached of the sheet's figures, and what a step costs beside the GPU's work.

    The ranges are what published vLLM runs show (sources in `docs/planning.md`).
    """

    bandwidth_ratio: float = 0.80  # 0.65–0.90 of the peak while decoding
    compute_ratio: float = 0.50  # 0.35–0.65 of the dense peak during prefill
    step_s: float = 1.0e-3  # 0.5–2 ms: scheduling, launch, sampling
    sequence_s: float = 10e-6  # 5–20 µs: scheduling and detokenising one more sequence


DEFAULT_EFFICIENCY = Efficiency()

# Products with many small experts reach about half of what dense ones do: 52,300 prompt tokens/s of
# DeepSeek-V3 on 8 H100 are 24 % of their FP8 peak (lmsys.org, 2025-05-05, large-scale EP).
EXPERT_COMPUTE_RATIO = 0.5

EFFICIENCY_RANGES = {
    "bandwidth_ratio": (0.65, 0.90),
    "compute_ratio": (0.35, 0.65),
    "step_s": (0.5e-3, 2e-3),
    "sequence_s": (5e-6, 20e-6),
}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware under one replica: the card, the split, the links inside and between stages."""

    gpu: Gpu
    split: Split = Split()
    tensor_link: Link | None = None  # None: a single card needs none
    stage_link: Link | None = None

    @property
    def tp(self) -> int:
        """Tensor-parallel ways."""
        return self.split.tp


def flops_per_token(model: Model) -> float:
    """Multiply-adds of the layers for one token, × 2; the output projection is not in it."""
    return 2.0 * matmul_params(model)


def attention_flops(model: Model, prompt_tokens: float) -> float:
    """FLOPs of causal attention over a prompt: QKᵀ and PV, 4 · heads · width · n²/2 a layer."""
    width = model.head_dim + model.rope_head_dim / 2 if model.kv_lora_rank else model.head_dim
    full = prompt_tokens**2 / 2
    window = min(model.window_tokens, prompt_tokens)
    windowed = window * prompt_tokens - window**2 / 2
    pairs = (model.layers - model.window_layers) * full + model.window_layers * windowed
    return 4.0 * model.heads * width * pairs


def compute_s(
    model: Model, machine: Machine, flops: float, dtype: str, efficiency: Efficiency
) -> float:
    """Seconds that one tensor-parallel group needs for that many FLOPs of the model."""
    reached = efficiency.compute_ratio * (EXPERT_COMPUTE_RATIO if model.experts else 1.0)
    return flops / (machine.gpu.flops_per_s(dtype) * reached * machine.tp)


def all_reduce_s(model: Model, machine: Machine, tokens: float) -> float:
    """Seconds of all-reduces in one pass of `tokens` through all layers: a ring moves
    2·(tp − 1)/tp of the activations one way; a small one costs the link's latency."""
    if machine.tp == 1 or machine.tensor_link is None:
        return 0.0
    calls = model.layers * ALL_REDUCES_PER_LAYER
    ring_bytes = 2 * (machine.tp - 1) / machine.tp * tokens * model.hidden * WIDE_BYTES
    moved_s = ring_bytes / (machine.tensor_link.gbps * 1e9 * LINK_EFFICIENCY)
    return calls * (machine.tensor_link.latency_s + moved_s)


def stage_send_s(model: Model, machine: Machine, tokens: float) -> float:
    """Seconds of passing activations from stage to stage, over all borders."""
    if machine.split.pp == 1 or machine.stage_link is None:
        return 0.0
    link = machine.stage_link
    moved_s = tokens * model.hidden * WIDE_BYTES / (link.gbps * 1e9 * LINK_EFFICIENCY)
    return (machine.split.pp - 1) * (link.latency_s + moved_s)


def pipeline_bubble_ratio(pp: int, microbatches: int) -> float:
    """Share of the time that a stage idles while m micro-batches pass: (pp − 1)/(m + pp − 1)."""
    return (pp - 1) / (max(1, microbatches) + pp - 1)


def prefill_s(
    model: Model,
    machine: Machine,
    weights_dtype: str,
    prompt_tokens: float,
    batched_tokens: int,
    efficiency: Efficiency = DEFAULT_EFFICIENCY,
) -> float:
    """Seconds from the start of a prompt's prefill to its first token, on an idle replica.

    Compute roofline with the quadratic term of attention, one pass of the weights for each chunk of
    `batched_tokens`, all-reduces, and over pipeline stages the bubble of that many chunks.
    """
    chunks = max(1, math.ceil(prompt_tokens / batched_tokens))
    flops = flops_per_token(model) * prompt_tokens + 2.0 * head_params(model)
    flops += attention_flops(model, prompt_tokens)
    math_s = compute_s(model, machine, flops, weights_dtype, efficiency)
    read_s = chunks * weight_read_s(
        model, machine, weights_dtype, prompt_tokens / chunks, efficiency
    )
    pp = machine.split.pp
    work_s = max(math_s, read_s) + all_reduce_s(model, machine, prompt_tokens)
    piped_s = work_s / pp / (1 - pipeline_bubble_ratio(pp, chunks))
    sends_s = stage_send_s(model, machine, prompt_tokens / chunks)
    return piped_s + sends_s + chunks * efficiency.step_s


def weight_read_s(
    model: Model, machine: Machine, weights_dtype: str, tokens: float, efficiency: Efficiency
) -> float:
    """Seconds to read the weights of all stages once, one after the other."""
    rate = machine.gpu.bandwidth_bytes_per_s * efficiency.bandwidth_ratio * machine.tp
    return read_bytes(model, weights_dtype, tokens) / rate


def kv_read_s(
    model: Model, machine: Machine, kv_dtype: str, context_tokens: float, efficiency: Efficiency
) -> float:
    """Seconds to read the KV cache of one sequence of that length, in all stages."""
    total = kv_bytes_per_sequence(model, kv_dtype, context_tokens)
    shard = kv_shard_ratio(model, Split(machine.tp, 1))
    return total * shard / (machine.gpu.bandwidth_bytes_per_s * efficiency.bandwidth_ratio)


def decode_step_s(
    model: Model,
    machine: Machine,
    weights_dtype: str,
    kv_dtype: str,
    batch: float,
    context_tokens: float,
    efficiency: Efficiency = DEFAULT_EFFICIENCY,
) -> float:
    """Seconds of one step that gives `batch` sequences one token each (the TPOT of that batch).

    The greater of reading the weights and computing with them, plus the KV cache, communication and
    overhead. Over pipeline stages the batch is dealt out as `pp` micro-batches in a row.
    """
    pp = machine.split.pp
    part = batch / pp
    read_s = weight_read_s(model, machine, weights_dtype, part, efficiency)
    flops = part * (flops_per_token(model) + 2.0 * head_params(model))
    math_s = compute_s(model, machine, flops, weights_dtype, efficiency)
    kv_s = part * kv_read_s(model, machine, kv_dtype, context_tokens, efficiency)
    talk_s = all_reduce_s(model, machine, part) + stage_send_s(model, machine, part)
    return (
        max(read_s, math_s) + kv_s + talk_s + pp * efficiency.step_s + batch * efficiency.sequence_s
    )


def decode_ceiling_tokens_per_s(model: Model, machine: Machine, weights_dtype: str) -> float:
    """Tokens a second of a single stream if the sheet's whole bandwidth were reached."""
    ideal = Efficiency(bandwidth_ratio=1.0)
    return 1 / weight_read_s(model, machine, weights_dtype, 1, ideal)


def crossover_batch(
    model: Model,
    machine: Machine,
    weights_dtype: str,
    efficiency: Efficiency = DEFAULT_EFFICIENCY,
) -> float:
    """The batch at which decode turns from memory-bound to compute-bound.

    Found by iteration, because more tokens read more experts; for a dense model it is one division.
    """
    per_token = flops_per_token(model) + 2.0 * head_params(model)
    math_s = compute_s(model, machine, per_token, weights_dtype, efficiency)
    batch = 1.0
    for _ in range(50):
        batch = weight_read_s(model, machine, weights_dtype, batch, efficiency) / math_s
    return batch
