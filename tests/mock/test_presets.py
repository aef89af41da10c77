"""The presets against the planner's law, from which they are taken."""

from __future__ import annotations

import msgspec
import pytest

from headrace.mock.presets import PRESETS, engine_of
from headrace.plan.catalog import find_model
from headrace.plan.gpus import find_gpu
from headrace.plan.steplaw import step_law

QWEN_27B = msgspec.structs.replace(find_model("qwen3-32b"), layers=52)
MADE_OF = {  # model, card, tensor-parallel ways, types of weights and KV
    "llama3-8b-h100": (find_model("llama-3-8b"), "H100-SXM", 1, "bf16", "bf16"),
    "llama2-7b-a10": (find_model("llama-2-7b"), "A10", 1, "fp16", "bf16"),
    "llama3-8b-l4": (find_model("llama-3-8b"), "L4", 1, "fp8", "fp8"),
    "qwen-27b-int4-24gb": (QWEN_27B, "RTX4090", 1, "int4", "bf16"),
    "qwen3-32b-2xh100-tp2": (find_model("qwen3-32b"), "H100-SXM", 2, "bf16", "bf16"),
    "llama3-70b-8xh100-tp8": (find_model("llama-3-70b"), "H100-SXM", 8, "bf16", "bf16"),
    "deepseek-v3-8xh200-tp8": (find_model("deepseek-v3"), "H200", 8, "fp8", "bf16"),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_agrees_with_the_planner(name):
    preset = PRESETS[name]
    model, card, tp, weights_dtype, kv_dtype = MADE_OF[name]
    law = step_law(model, find_gpu(card), tp, 1, weights_dtype, kv_dtype)
    near = 0.2 if preset.source.endswith("study") else 0.01
    assert preset.base_ms / 1e3 == pytest.approx(law.base_s, rel=near)
    assert preset.prefill_us / 1e6 == pytest.approx(law.per_prefill_token_s, rel=near)
    assert preset.decode_us / 1e6 == pytest.approx(law.per_sequence_s, rel=near)
    assert preset.context_us / 1e6 == pytest.approx(law.per_context_token_s, rel=near)
    assert preset.kv_tokens == pytest.approx(law.kv_capacity_tokens, rel=near)
    assert preset.max_num_batched_tokens == law.batched_tokens
    assert preset.max_num_seqs <= law.max_num_seqs


@pytest.mark.parametrize("speedup", [1.0, 10.0])
def test_speedup_shortens_every_part_of_a_step(speedup):
    preset = PRESETS["llama2-7b-a10"]
    engine = engine_of(preset, speedup=speedup)
    engine.submit(0, 1, 1000, 2)
    first_ns = engine.next_event_ns()
    assert first_ns == pytest.approx((24e6 + 230e3 * 1000) / speedup, abs=1)
    engine.advance(first_ns)
    step_ns = engine.next_event_ns() - first_ns
    assert step_ns == pytest.approx((24e6 + 100e3 + 1100 * 1000) / speedup, abs=1)
