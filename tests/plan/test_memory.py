"""Bytes of weights and KV cache against public figures."""

import pytest

from headrace.plan.catalog import MODELS, find_model
from headrace.plan.deployment import Split, deployment_of
from headrace.plan.gpus import find_gpu
from headrace.plan.memory import (
    default_batched_tokens,
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    kv_shard_ratio,
    memory_of,
    read_bytes,
    weight_bytes,
)

KIB = 1024


@pytest.mark.parametrize(
    ("model", "kib"),
    [
        ("llama-2-7b", 512),  # 2 · 32 layers · 32 heads · 128 · 2 B
        ("llama-3-8b", 128),  # the same with 8 KV heads
        ("llama-3-70b", 320),  # 80 layers
        ("deepseek-v3", 68.6),  # (512 + 64) · 61 · 2 B: "about 70 KB", DeepSeek-V3 report
        ("falcon-7b", 8),  # one KV head of 64
    ],
)
def test_kv_bytes_of_a_token(model: str, kib: float) -> None:
    assert kv_bytes_per_token(find_model(model), "bf16") / KIB == pytest.approx(kib, rel=0.002)


def test_no_model_comes_near_half_a_kilobyte_a_token() -> None:
    """The popular "0.5 KB per token" is off by one to three orders of magnitude."""
    for model in MODELS.values():
        assert kv_bytes_per_token(model, "bf16") > 10 * 512


def test_weights_of_llama_3_70b_are_141_gb_and_need_two_cards_of_80() -> None:
    model, gpu = find_model("llama-3-70b"), find_gpu("H100-SXM")
    assert weight_bytes(model, "fp16") / 1e9 == pytest.approx(141, abs=1)
    one, two = (deployment_of(model, gpu, Split(tp), "fp16", "fp16") for tp in (1, 2))
    assert not memory_of(one, 8192).fits
    assert memory_of(two, 8192).fits


def test_tp8_of_llama_3_70b_leaves_room_for_some_170_sequences_of_8k() -> None:
    model, gpu = find_model("llama-3-70b"), find_gpu("H100-SXM")
    memory = memory_of(deployment_of(model, gpu, Split(8), "fp16", "fp16"), 8192)
    # 8 · (0.92 · 85.9 GB − 17.6 GB weights − some 2 GB) ÷ (8192 · 320 KiB)
    assert memory.kv_capacity_tokens // 8192 == pytest.approx(174, abs=8)


def test_int4_carries_its_scales_and_keeps_embeddings_wide() -> None:
    model = find_model("gemma-2-27b")
    layers = 27.2e9 - 1.18e9
    expected = layers * (4 + 20 / 128) / 8 + 1.18e9 * 2
    assert weight_bytes(model, "int4") == pytest.approx(expected, rel=0.01)


def test_a_sliding_window_stops_growing_at_its_length() -> None:
    model = find_model("gemma-3-27b")
    short, long = (kv_bytes_per_sequence(model, "bf16", n) for n in (1024, 32768))
    assert short == 1024 * kv_bytes_per_token(model, "bf16")
    assert long == short + (32768 - 1024) * 10 * 2 * 16 * 128 * 2  # the 10 full layers only


def test_heads_are_dealt_out_and_copied_beyond_their_number_but_a_latent_is_not_cut() -> None:
    llama, deepseek = find_model("llama-3-70b"), find_model("deepseek-v3")
    assert kv_shard_ratio(llama, Split(4)) == 1 / 4
    assert kv_shard_ratio(llama, Split(16)) == 1 / 8
    assert kv_shard_ratio(deepseek, Split(8)) == 1
    assert kv_shard_ratio(llama, Split(8, 2)) == 1 / 16


def test_a_lone_token_reads_few_experts_and_many_tokens_read_all() -> None:
    model = find_model("deepseek-v3")
    one, all_of_them = (read_bytes(model, "fp8", n) for n in (1, 100_000))
    assert one / 1e9 == pytest.approx(37.5, rel=0.05)  # what is active, in one byte each
    assert all_of_them == pytest.approx(weight_bytes(model, "fp8"), rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "tokens"), [("A10", 2048), ("A100-80G", 2048), ("H100", 8192), ("B200", 16384)]
)
def test_batched_tokens_are_the_engine_s_own_default(gpu: str, tokens: int) -> None:
    assert (
        default_batched_tokens(find_gpu(gpu)) == tokens
    )  # vLLM 0.32, EngineArgs.get_batch_defaults


def test_a_tight_fit_raises_the_share_of_memory_but_never_beyond_the_safe_one() -> None:
    model, gpu = find_model("llama-3-70b"), find_gpu("H100-SXM")
    tight = memory_of(deployment_of(model, gpu, Split(1), "fp8", "fp8"), 4096)
    # a single H100 serves the FP8 model with a short context only (Lambda vLLM benchmark, 2024)
    assert 0 < tight.kv_capacity_tokens < 40_000
    assert 0.92 <= tight.utilization <= 0.95
