"""Where a card's memory goes: weights, KV cache, activations, runtime.

All figures of a replica that is split tp × pp ways are for its fullest card.
"""

from __future__ import annotations

import math

import msgspec

from headrace.plan.deployment import Deployment, Split
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


def activation_bytes(replica: Deployment) -> int:
    """Peak of vLLM's profile run: the widest layer over a full step, and the logits in 32 bit."""
    model, tp = replica.model, replica.split.tp
    mlp = 3 * max(model.intermediate, model.expert_intermediate * max(1, model.experts_per_token))
    per_token = (mlp / tp + 4 * model.hidden) * WIDE_BYTES
    logits = default_max_num_seqs(replica.gpu) * model.vocab / tp * 4 * 2
    return int(default_batched_tokens(replica.gpu) * per_token + logits)


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


def memory_of(replica: Deployment, context_tokens: int, utilization: float | None = None) -> Memory:
    """How the memory of one card is used, sequences being of that length.

    `utilization` None: vLLM's default, or the largest safe one if the default leaves nothing.
    """
    if utilization is None:
        safe = safe_utilization(replica.gpu)
        usual = memory_of(replica, context_tokens, min(DEFAULT_UTILIZATION, safe))
        return usual if usual.fits else memory_of(replica, context_tokens, safe)
    card_bytes, split = replica.gpu.memory_bytes, replica.split
    weights = math.ceil(weight_bytes(replica.model, replica.weights_dtype) / split.gpus)
    activations = activation_bytes(replica)
    runtime = RUNTIME_BYTES + (COLLECTIVE_BYTES if split.gpus > 1 else 0)
    sequence = kv_bytes_per_sequence(replica.model, replica.kv_dtype, context_tokens)
    return Memory(
        card_bytes=card_bytes,
        utilization=utilization,
        weight_bytes=weights,
        activation_bytes=activations,
        runtime_bytes=runtime,
        kv_bytes=int(card_bytes * utilization) - weights - activations - runtime,
        kv_bytes_per_token=sequence / context_tokens * kv_shard_ratio(replica.model, split),
    )
