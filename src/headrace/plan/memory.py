"""Where a card's memory goes: weights, KV cache, activations, runtime.

All figures of a replica that is split tp × pp ways are for its fullest card.
"""

from __future__ import annotations

import math

import msgspec

from headrace.plan.gpus import GIB, Gpu
from headrace.plan.models import (
    Model,
    always_read_params,
    head_params,
    routed_params,
    total_params,
    touched_expert_ratio,
)
from headrace.plan.precision import WIDE_BYTES, kv_element_bytes, weight_element_bytes

# CUDA context, kernels and graphs of a vLLM worker: 0.5 to 1 GiB (its memory profile at start).
RUNTIME_BYTES = int(0.75 * GIB)
# Buffers of NCCL and of the custom all-reduce, for each card of a group: 0.2 to 0.6 GiB.
COLLECTIVE_BYTES = int(0.35 * GIB)

# vLLM 0.32 default, and what is sensible at most: outside it live the context of other programs,
# fragmentation and whatever the profile run did not see.
DEFAULT_UTILIZATION = 0.92
MAX_UTILIZATION = 0.95
_OUTSIDE_BYTES = int(1.0 * GIB)

# vLLM rounds every sequence up to whole blocks.
BLOCK_TOKENS = 16


class Split(msgspec.Struct, frozen=True):
    """How one replica is cut: tensor-parallel ways inside a stage, pipeline stages."""

    tp: int = 1
    pp: int = 1

    @property
    def gpus(self) -> int:
        """Cards of one replica."""
        return self.tp * self.pp


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The split of one card's memory, bytes; `kv_bytes` is what is left and may be negative."""

    card_bytes: int
    utilization: float
    weight_bytes: int
    activation_bytes: int
    runtime_bytes: int
    kv_bytes: int
    kv_bytes_per_token: float  # of a card, at the planned context

    @property
    def fits(self) -> bool:
        """Whether at least one block of KV cache is left."""
        return self.kv_bytes >= self.kv_bytes_per_token * BLOCK_TOKENS

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV cache of the replica holds; 0 when the weights do not fit."""
        if not self.fits:
            return 0
        return int(self.kv_bytes / self.kv_bytes_per_token) // BLOCK_TOKENS * BLOCK_TOKENS


def weight_bytes(model: Model, dtype: str) -> int:
    """Bytes of all weights of the model."""
    layers = always_read_params(model) + routed_params(model)
    wide = total_params(model) - layers
    return int(layers * weight_element_bytes(dtype) + wide * WIDE_BYTES)


def read_bytes(model: Model, dtype: str, tokens: float) -> float:
    """Bytes of weights that one step over `tokens` reads: all but the input embedding, and of a
    mixture of experts only those that some token is sent to."""
    routed = routed_params(model) * touched_expert_ratio(model, tokens)
    layers = always_read_params(model) + routed
    return layers * weight_element_bytes(dtype) + head_params(model) * WIDE_BYTES


def kv_bytes_per_layer_token(model: Model, dtype: str) -> float:
    """Bytes that one token leaves in the cache of one layer: key and value of each KV head, or the
    latent and its rotary part (MLA)."""
    if model.kv_lora_rank:
        elements = model.kv_lora_rank + model.rope_head_dim
    else:
        elements = 2 * model.kv_heads * model.head_dim
    return elements * kv_element_bytes(dtype)


def kv_bytes_per_token(model: Model, dtype: str) -> float:
    """Bytes that one token leaves in the cache of all layers, whatever the window."""
    return model.layers * kv_bytes_per_layer_token(model, dtype)


def kv_bytes_per_sequence(model: Model, dtype: str, context_tokens: float) -> float:
    """Bytes of one sequence of that length; a sliding-window layer keeps its window only."""
    full = (model.layers - model.window_layers) * context_tokens
    windowed = model.window_layers * min(context_tokens, model.window_tokens)
    return (full + windowed) * kv_bytes_per_layer_token(model, dtype)


def kv_shard_ratio(model: Model, split: Split) -> float:
    """Share of a token's KV bytes that one card holds.

    Heads are dealt out over the tensor-parallel ways and copied when there are more ways than
    heads; an MLA latent cannot be cut and is on every card of its stage.
    """
    ways = 1 if model.kv_lora_rank else min(split.tp, model.kv_heads)
    stage_layers = math.ceil(model.layers / split.pp)
    return stage_layers / model.layers / ways


def activation_bytes(model: Model, split: Split, batched_tokens: int, max_num_seqs: int) -> int:
    """Peak of the profile run: the widest layer over a full step, and the logits in 32 bit."""
    mlp = 3 * max(model.intermediate, model.expert_intermediate * max(1, model.experts_per_token))
    per_token = (mlp / split.tp + 4 * model.hidden) * WIDE_BYTES
    logits = max_num_seqs * model.vocab / split.tp * 4 * 2
    return int(batched_tokens * per_token + logits)


def default_batched_tokens(gpu: Gpu) -> int:
    """`--max-num-batched-tokens` that `vllm serve` 0.32 takes on this card by itself."""
    if gpu.memory_bytes >= 160 * GIB:
        return 16384
    large = gpu.memory_bytes >= 70 * GIB and not gpu.name.startswith("A100")
    return 8192 if large else 2048


def default_max_num_seqs(gpu: Gpu) -> int:
    """`--max-num-seqs` that `vllm serve` 0.32 takes on this card by itself."""
    return 256 if default_batched_tokens(gpu) == 2048 else 1024


def safe_utilization(gpu: Gpu) -> float:
    """The largest sensible `--gpu-memory-utilization`: leaves 1 GiB, at most 0.95."""
    ratio = min(MAX_UTILIZATION, 1 - _OUTSIDE_BYTES / gpu.memory_bytes)
    return math.floor(ratio * 100) / 100


def memory_of(
    model: Model,
    gpu: Gpu,
    split: Split,
    weights_dtype: str,
    kv_dtype: str,
    *,
    context_tokens: int,
    utilization: float | None = None,
    batched_tokens: int | None = None,
) -> Memory:
    """How the memory of one card is used when a replica is split that way.

    `utilization` None: vLLM's default, or the largest safe one if the default leaves nothing.
    """
    if utilization is None:
        split_default = memory_of(
            model,
            gpu,
            split,
            weights_dtype,
            kv_dtype,
            context_tokens=context_tokens,
            utilization=min(DEFAULT_UTILIZATION, safe_utilization(gpu)),
            batched_tokens=batched_tokens,
        )
        if split_default.fits:
            return split_default
        utilization = safe_utilization(gpu)
    tokens = batched_tokens or default_batched_tokens(gpu)
    weights = math.ceil(weight_bytes(model, weights_dtype) / split.gpus)
    activations = activation_bytes(model, split, tokens, default_max_num_seqs(gpu))
    runtime = RUNTIME_BYTES + (COLLECTIVE_BYTES if split.gpus > 1 else 0)
    per_sequence = kv_bytes_per_sequence(model, kv_dtype, context_tokens)
    return Memory(
        card_bytes=gpu.memory_bytes,
        utilization=utilization,
        weight_bytes=weights,
        activation_bytes=activations,
        runtime_bytes=runtime,
        kv_bytes=int(gpu.memory_bytes * utilization) - weights - activations - runtime,
        kv_bytes_per_token=per_sequence / context_tokens * kv_shard_ratio(model, split),
    )
