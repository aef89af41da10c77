"""`config.json` files: the built-in shapes come out again, and what is missing is named."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plan.asking import model_named
from headrace.plan.catalog import find_model
from headrace.plan.memory import kv_bytes_per_token
from headrace.plan.models import Model, total_params
from headrace.plan.names import PlanError

LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
DEEPSEEK_V3 = {
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {"quant_method": "fp8"},
    "v_head_dim": 128,
    "vocab_size": 129280,
}
MIXTRAL = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
    "vocab_size": 32000,
}
GEMMA_3_27B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "max_position_embeddings": 131072,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "vocab_size": 262208,
    },
    "tie_word_embeddings": True,
}
FALCON_7B = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 71,
    "num_hidden_layers": 32,
    "tie_word_embeddings": True,
    "vocab_size": 65024,
}


def read(tmp_path: Path, config: Any) -> Model:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    return model_named(str(file))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA_3_8B, "llama-3-8b"),
        (DEEPSEEK_V3, "deepseek-v3"),
        (MIXTRAL, "mixtral-8x7b"),
        (GEMMA_3_27B, "gemma-3-27b"),
        (FALCON_7B, "falcon-7b"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_config_gives_the_built_in_shape(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    found, known = read(tmp_path, config), find_model(name)
    assert total_params(found) == total_params(known)
    assert kv_bytes_per_token(found, "bf16") == kv_bytes_per_token(known, "bf16")
    assert (found.window_tokens, found.window_layers, found.native_dtype) == (
        known.window_tokens,
        known.window_layers,
        known.native_dtype,
    )


def test_a_directory_with_a_config_will_do(tmp_path: Path) -> None:
    model = tmp_path / "my-model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(LLAMA_3_8B))
    assert model_named(str(model)).name == "my-model"


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size"]
)
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    config = {k: v for k, v in LLAMA_3_8B.items() if k != key}
    with pytest.raises(PlanError, match=f"key {key}.* is missing"):
        read(tmp_path, config)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
        ({"num_local_experts": 8}, "num_experts_per_tok.* is missing"),
        ({"hidden_size": "big"}, "whole number"),
        ({"hidden_size": -4}, "whole number"),
        ({"num_hidden_layers": 0}, "above 0"),
        ({"layer_types": ["linear_attention"] * 32}, "linear_attention is not modelled"),
    ],
)
def test_a_bad_key_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        read(tmp_path, {**LLAMA_3_8B, **change})


@pytest.mark.parametrize(("text", "said"), [("[1]", "JSON object"), ("{", "no JSON")])
def test_what_is_no_config_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(PlanError, match=said):
        model_named(str(file))


sizes = st.one_of(
    st.integers(-2, 1 << 41), st.none(), st.booleans(), st.floats(), st.text(max_size=3)
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted({*DEEPSEEK_V3, *MIXTRAL, *LLAMA_3_8B})), sizes))
def test_any_config_is_a_shape_or_a_plain_error(changes: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = read(Path(folder), {**LLAMA_3_8B, **changes})
        except PlanError:
            return
    assert total_params(found) > 0 and kv_bytes_per_token(found, "bf16") > 0
