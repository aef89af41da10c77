"""What the planner knows of a model: its shape, and the counts that follow from the shape.

Parameters are counted, not quoted: the tests hold the counts against the published figures.
"""

from __future__ import annotations

import msgspec


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a decoder-only transformer, in the terms of its public `config.json`.

    `kv_lora_rank` above 0 means multi-head latent attention (MLA): one latent vector a token and
    layer is cached in place of keys and values. `experts` above 0 means mixture of experts after
    the first `dense_layers`. `window_layers` of the layers see only the last `window_tokens`.
    """

    name: str
    hub: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_context_tokens: int
    tied_embeddings: bool = False
    mlp_matrices: int = 3  # gate, up and down; 2 where there is no gate
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    expert_intermediate: int = 0
    dense_layers: int = 0
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    rope_head_dim: int = 0
    v_head_dim: int = 0
    window_tokens: int = 0
    window_layers: int = 0
    native_dtype: str = "bf16"  # of the published weights

    @property
    def attention(self) -> str:
        """`MLA`, `MQA`, `GQA` or `MHA`."""
        if self.kv_lora_rank:
            return "MLA"
        if self.kv_heads == 1 and self.heads > 1:
            return "MQA"
        return "MHA" if self.kv_heads == self.heads else "GQA"

    @property
    def moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0


def attention_params(model: Model) -> int:
    """Weights of one attention block: the projections of query, key, value and output."""
    h, heads = model.hidden, model.heads
    if not model.kv_lora_rank:
        return h * model.head_dim * (2 * heads + 2 * model.kv_heads)
    query_width = heads * (model.head_dim + model.rope_head_dim)
    q_rank = model.q_lora_rank
    query = q_rank * (h + query_width) if q_rank else h * query_width
    latent = h * (model.kv_lora_rank + model.rope_head_dim)
    expand = model.kv_lora_rank * heads * (model.head_dim + model.v_head_dim)
    return query + latent + expand + heads * model.v_head_dim * h


def expert_params(model: Model) -> int:
    """Weights of one routed expert, of one layer."""
    return model.mlp_matrices * model.hidden * model.expert_intermediate


def always_read_params(model: Model) -> int:
    """Weights of the layers that every token passes: all but embeddings and routed experts."""
    dense = model.layers - model.moe_layers
    mlp = dense * model.mlp_matrices * model.hidden * model.intermediate
    shared = model.moe_layers * model.shared_experts * expert_params(model)
    router = model.moe_layers * model.hidden * model.experts
    return model.layers * attention_params(model) + mlp + shared + router


def routed_params(model: Model) -> int:
    """Weights of all routed experts together; 0 for a dense model."""
    return model.moe_layers * model.experts * expert_params(model)


def head_params(model: Model) -> int:
    """Weights of the output projection, which every decoded token reads."""
    return model.vocab * model.hidden


def embedding_params(model: Model) -> int:
    """Weights of input embedding and output projection; one matrix where they are tied."""
    return head_params(model) * (1 if model.tied_embeddings else 2)


def total_params(model: Model) -> int:
    """All weights of the model."""
    norms = (2 * model.layers + 1) * model.hidden
    return always_read_params(model) + routed_params(model) + embedding_params(model) + norms


def active_params(model: Model) -> int:
    """Weights that one token uses, embeddings included, as model cards count them."""
    return total_params(model) - routed_params(model) + _routed_per_token(model)


def matmul_params(model: Model) -> int:
    """Weights of the layers that one token is multiplied with; two FLOPs each."""
    return always_read_params(model) + _routed_per_token(model)


def touched_expert_ratio(model: Model, tokens: float) -> float:
    """Share of the routed experts that a step of `tokens` reads, routing taken as uniform, 0–1."""
    if not model.experts:
        return 0.0
    return float(1 - (1 - model.experts_per_token / model.experts) ** max(tokens, 0.0))


def _routed_per_token(model: Model) -> int:
    return model.moe_layers * model.experts_per_token * expert_params(model)
