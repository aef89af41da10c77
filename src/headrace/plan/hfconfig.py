"""Reads a model's shape from a Hugging Face `config.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from headrace.plan.models import Model
from headrace.plan.names import PlanError

# Ours: the spellings of public configs, the common one first.
_KEYS: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size",),
    "intermediate": ("intermediate_size", "ffn_hidden_size", "n_inner"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "context": ("max_position_embeddings", "seq_length", "n_positions"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_topk"),
    "expert_intermediate": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
    "dense_layers": ("first_k_dense_replace",),
}
_NOT_MODELLED = {"linear_attention", "mamba", "mamba2", "recurrent", "lightning_attention"}


def read_config(path: Path) -> Model:
    """The shape in that file.

    Raises PlanError for a file that cannot be read, is no JSON object, or lacks a key (which it
    names).
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}", param="model") from error
    try:
        config = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise PlanError(f"{path}: no JSON: {error}", param="model") from error
    if not isinstance(config, dict):
        raise PlanError(f"{path}: a config.json is a JSON object", param="model")
    inner = config.get("text_config")  # multi-modal models keep the language model in here
    if isinstance(inner, dict):
        config = {**config, **inner}
    name = str(config.get("_name_or_path") or path.resolve().parent.name or path.stem)
    return _Reader(config, str(path)).model(name)


class _Reader:
    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config = config
        self.where = where

    def model(self, hub: str) -> Model:
        """All of the shape; what is optional in the format has the format's default."""
        self._refuse_other_attention()
        hidden, heads = self.number("hidden"), self.number("heads")
        latent = self.optional_key("kv_lora_rank", 0)
        nope = self.optional_key("qk_nope_head_dim", 0)
        experts = self.optional("experts", 0)
        intermediate = self.optional("intermediate", 4 * hidden)
        window, window_layers = self._window(self.number("layers"))
        if experts and "expert_intermediate" not in self._present():
            expert_intermediate = intermediate  # Mixtral has no key of its own
        else:
            expert_intermediate = self.optional("expert_intermediate", 0)
        return Model(
            name=hub.rstrip("/").rsplit("/", 1)[-1],
            hub=hub,
            layers=self.number("layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=self._kv_heads(heads),
            head_dim=nope or self.optional_key("head_dim", max(1, hidden // heads)),
            intermediate=intermediate,
            vocab=self.number("vocab"),
            max_context_tokens=self.optional("context", 4096),
            tied_embeddings=bool(self.config.get("tie_word_embeddings", False)),
            mlp_matrices=2 if self._ungated() else 3,
            experts=experts,
            experts_per_token=self.number("experts_per_token") if experts else 0,
            shared_experts=self.optional("shared_experts", 0) if experts else 0,
            expert_intermediate=expert_intermediate if experts else 0,
            dense_layers=self.optional("dense_layers", 0) if experts else 0,
            kv_lora_rank=latent,
            q_lora_rank=self.optional_key("q_lora_rank", 0),
            rope_head_dim=self.number_key("qk_rope_head_dim") if latent else 0,
            v_head_dim=self.number_key("v_head_dim") if latent else 0,
            window_tokens=window,
            window_layers=window_layers,
            native_dtype=self._native_dtype(),
        )

    def number(self, ours: str) -> int:
        """A figure that must be there."""
        value = self._find(ours)
        if value is None:
            spelled = " or ".join(_KEYS[ours])
            raise PlanError(f"{self.where}: key {spelled} is missing", param="model")
        return self._positive(value, _KEYS[ours][0])

    def optional(self, ours: str, default: int) -> int:
        """A figure that may be missing or null."""
        value = self._find(ours)
        return default if value is None else self._natural(value, _KEYS[ours][0])

    def number_key(self, key: str) -> int:
        """A figure that has one spelling only and must be there."""
        if self.config.get(key) is None:
            raise PlanError(f"{self.where}: key {key} is missing", param="model")
        return self._positive(self.config[key], key)

    def optional_key(self, key: str, default: int) -> int:
        """A figure that has one spelling only and may be missing or null."""
        value = self.config.get(key)
        return default if value is None else self._natural(value, key)

    def _present(self) -> set[str]:
        return {ours for ours in _KEYS if self._find(ours) is not None}

    def _find(self, ours: str) -> Any:
        found = (self.config[key] for key in _KEYS[ours] if self.config.get(key) is not None)
        return next(found, None)

    def _positive(self, value: Any, key: str) -> int:
        if self._natural(value, key) == 0:
            raise PlanError(f"{self.where}: key {key} must be above 0", param="model")
        return int(value)

    def _natural(self, value: Any, key: str) -> int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 0 <= value < 1 << 40:
            raise PlanError(f"{self.where}: key {key} must be a whole number, got {value!r}")
        return int(value)

    def _kv_heads(self, heads: int) -> int:
        if self.config.get("multi_query") is True and not self.config.get(
            "new_decoder_architecture"
        ):
            return 1  # Falcon 7B
        return self.optional("kv_heads", heads) or heads

    def _ungated(self) -> bool:
        return self.config.get("model_type") in {
            "falcon",
            "gpt2",
            "gpt_neox",
            "opt",
            "phi",
            "bloom",
        }

    def _native_dtype(self) -> str:
        quantised = self.config.get("quantization_config")
        if isinstance(quantised, Mapping) and quantised.get("quant_method") == "fp8":
            return "fp8"
        stored = str(self.config.get("torch_dtype") or self.config.get("dtype") or "bfloat16")
        return "fp16" if stored.endswith("float16") and "bfloat" not in stored else "bf16"

    def _refuse_other_attention(self) -> None:
        kinds = self.config.get("layer_types") or ()
        odd = _NOT_MODELLED.intersection(kinds if isinstance(kinds, Sequence) else ())
        if odd or self.config.get("full_attention_interval") or self.config.get("ssm_state_size"):
            what = ", ".join(sorted(odd)) or "a state-space or linear-attention layer"
            raise PlanError(f"{self.where}: {what} is not modelled", param="model")

    def _window(self, layers: int) -> tuple[int, int]:
        """Length of the sliding window and the number of layers that have one."""
        length = self.optional_key("sliding_window", 0)
        if not length or self.config.get("use_sliding_window") is False:
            return 0, 0
        kinds = self.config.get("layer_types")
        if isinstance(kinds, Sequence) and not isinstance(kinds, str) and len(kinds) == layers:
            windowed = sum(kind == "sliding_attention" for kind in kinds)
        elif self.config.get("model_type") == "gemma2":
            windowed = layers // 2
        elif str(self.config.get("model_type")).startswith("gemma3"):
            windowed = layers - layers // (self.optional_key("sliding_window_pattern", 6) or 6)
        else:
            windowed = layers
        return (length, windowed) if windowed else (0, 0)
