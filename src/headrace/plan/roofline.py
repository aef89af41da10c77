"""How long one engine step takes, from the sheets: compute, memory and communication.

Prefill is bound by compute, decode by memory until the batch is large enough; see
`docs/planning.md` for the formulas and where the efficiencies come from.
"""

from __future__ import annotations

import math

import msgspec

from headrace.plan.deployment import EXPERT_COMPUTE_RATIO, Deployment, Efficiency, Split
from headrace.plan.links import LINK_EFFICIENCY
from headrace.plan.memory import kv_bytes_per_sequence, kv_shard_ratio, read_bytes
from headrace.plan.models import Model, head_params, matmul_params
from headrace.plan.precision import WIDE_BYTES

ALL_REDUCES_PER_LAYER = 2  # after attention and after the MLP (Megatron-LM)


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


def compute_s(replica: Deployment, flops: float) -> float:
    """Seconds that one tensor-parallel group needs for that many FLOPs of the model."""
    reached = replica.efficiency.compute_ratio
    if replica.model.experts:
        reached *= EXPERT_COMPUTE_RATIO
    return flops / (replica.gpu.flops_per_s(replica.weights_dtype) * reached * replica.split.tp)


def all_reduce_s(replica: Deployment, tokens: float) -> float:
    """Seconds of all-reduces in one pass of `tokens` through all layers: a ring moves
    2·(tp − 1)/tp of the activations one way; a small one costs the link's latency."""
    model, tp, link = replica.model, replica.split.tp, replica.tensor_link
    if tp == 1:
        return 0.0
    ring_bytes = 2 * (tp - 1) / tp * tokens * model.hidden * WIDE_BYTES
    moved_s = ring_bytes / (link.gbps * 1e9 * LINK_EFFICIENCY)
    return model.layers * ALL_REDUCES_PER_LAYER * (link.latency_s + moved_s)


def stage_send_s(replica: Deployment, tokens: float) -> float:
    """Seconds of passing activations from stage to stage, over all borders."""
    link = replica.stage_link
    moved_s = tokens * replica.model.hidden * WIDE_BYTES / (link.gbps * 1e9 * LINK_EFFICIENCY)
    return (replica.split.pp - 1) * (link.latency_s + moved_s)


def pipeline_bubble_ratio(pp: int, microbatches: int) -> float:
    """Share of the time that a stage idles while m micro-batches pass: (pp − 1)/(m + pp − 1)."""
    return (pp - 1) / (max(1, microbatches) + pp - 1)


def prefill_s(replica: Deployment, prompt_tokens: float, batched_tokens: int) -> float:
    """Seconds from the start of a prompt's prefill to its first token, on an idle replica.

    Compute roofline with the quadratic term of attention, one pass of the weights for each chunk of
    `batched_tokens`, all-reduces, and over pipeline stages the bubble of that many chunks.
    """
    model, pp = replica.model, replica.split.pp
    chunks = max(1, math.ceil(prompt_tokens / batched_tokens))
    read_s = chunks * weight_read_s(replica, prompt_tokens / chunks)
    work_s = max(compute_s(replica, prompt_flops(model, prompt_tokens)), read_s)
    work_s += all_reduce_s(replica, prompt_tokens)
    piped_s = work_s / pp / (1 - pipeline_bubble_ratio(pp, chunks))
    sends_s = stage_send_s(replica, prompt_tokens / chunks)
    return piped_s + sends_s + chunks * overhead_s(replica)


def prompt_flops(model: Model, prompt_tokens: float) -> float:
    """FLOPs of a whole prompt; only its last token goes through the output projection."""
    layers = flops_per_token(model) * prompt_tokens + attention_flops(model, prompt_tokens)
    return layers + 2.0 * head_params(model)


def weight_read_s(replica: Deployment, tokens: float) -> float:
    """Seconds to read the weights of all stages once, one after the other."""
    wanted = read_bytes(replica.model, replica.weights_dtype, tokens)
    return wanted / (_bandwidth(replica) * replica.split.tp)


def kv_read_s(replica: Deployment, context_tokens: float) -> float:
    """Seconds to read the KV cache of one sequence of that length, in all stages."""
    total = kv_bytes_per_sequence(replica.model, replica.kv_dtype, context_tokens)
    return total * kv_shard_ratio(replica.model, Split(replica.split.tp)) / _bandwidth(replica)


def _bandwidth(replica: Deployment) -> float:
    return replica.gpu.bandwidth_bytes_per_s * replica.efficiency.bandwidth_ratio


def overhead_s(replica: Deployment) -> float:
    """Seconds of a step beside its work: once a stage, and once a layer of experts."""
    used = replica.efficiency
    return replica.split.pp * used.step_s + replica.model.moe_layers * used.expert_layer_s


def decoded_token_s(replica: Deployment) -> float:
    """Seconds of computing one decoded token, output projection included."""
    flops = flops_per_token(replica.model) + 2.0 * head_params(replica.model)
    return compute_s(replica, flops)


def decode_step_s(replica: Deployment, batch: float, context_tokens: float) -> float:
    """Seconds of one step that gives `batch` sequences one token each (the TPOT of that batch).

    The greater of reading the weights and computing with them, plus the KV cache, communication and
    overhead. Over pipeline stages the batch is dealt out as `pp` micro-batches in a row.
    """
    pp = replica.split.pp
    part = batch / pp
    work_s = max(weight_read_s(replica, part), part * decoded_token_s(replica))
    kv_s = part * kv_read_s(replica, context_tokens)
    talk_s = all_reduce_s(replica, part) + stage_send_s(replica, part)
    sequences_s = batch * replica.efficiency.sequence_s
    return work_s + kv_s + talk_s + overhead_s(replica) + sequences_s


def decode_ceiling_tokens_per_s(replica: Deployment) -> float:
    """Tokens a second of a single stream if the sheet's whole bandwidth were reached."""
    ideal = msgspec.structs.replace(replica, efficiency=Efficiency(bandwidth_ratio=1.0))
    return 1 / weight_read_s(ideal, 1)


def crossover_batch(replica: Deployment) -> float:
    """The batch at which decode turns from memory-bound to compute-bound.

    Found by iteration, because more tokens read more experts; for a dense model it is one division.
    """
    token_s = decoded_token_s(replica)
    batch = 1.0
    for _ in range(50):
        batch = weight_read_s(replica, batch) / token_s
    return batch
