"""Step times from the sheets, against public measurements."""

import pytest
from msgspec.structs import replace

from headrace.plan.catalog import find_model
from headrace.plan.deployment import Split, deployment_of
from headrace.plan.gpus import find_gpu
from headrace.plan.roofline import (
    all_reduce_s,
    attention_flops,
    crossover_batch,
    decode_ceiling_tokens_per_s,
    decode_step_s,
    pipeline_bubble_ratio,
    prefill_s,
    stage_send_s,
)
from headrace.plan.steplaw import step_law


def test_27b_in_int4_tops_out_near_200_tokens_a_second_at_3_35_tb() -> None:
    for name in ("gemma-2-27b", "gemma-3-27b"):
        replica = deployment_of(find_model(name), find_gpu("H100-SXM"), Split(), "int4")
        assert 180 <= decode_ceiling_tokens_per_s(replica) <= 250


# Single streams measured with vLLM: model, card, tp, tokens a second.
SINGLE_STREAMS = [
    # blog "vLLM throughput-latency sweep on NVIDIA A100", vLLM 0.23
    ("llama-3.1-8b", "A100-40G", 1, 75.0),
    # github.com/tenstorrent/tt-inference-server/issues/143: TPOT 30.9 ms on 2 × H100
    ("qwen2.5-72b", "H100-SXM", 2, 32.4),
    # github.com/tenstorrent/tt-inference-server/issues/340: TPOT 4.6 and 9.8 ms on an A100
    ("qwen3-1.7b", "A100-80G", 1, 215.0),
    ("qwen3-30b-a3b", "A100-80G", 1, 102.0),
    # arXiv 2026-05-28, "Memory-bound but not bandwidth-limited": 62.3 ms a step on an L4
    ("qwen2.5-7b", "L4", 1, 16.0),
]


@pytest.mark.parametrize(("model", "gpu", "tp", "measured"), SINGLE_STREAMS)
def test_single_streams_are_within_a_factor_of_1_5(
    model: str, gpu: str, tp: int, measured: float
) -> None:
    step_s = decode_step_s(deployment_of(find_model(model), find_gpu(gpu), Split(tp)), 1, 1024)
    assert measured / 1.5 <= 1 / step_s <= measured * 1.5


def saturated_output_tokens_per_s(
    model: str, gpu: str, tp: int, dtype: str, batch: int, prompt: int, output: int
) -> float:
    """A replica with a full batch: every sequence brings its prompt's prefill once an output."""
    law = step_law(find_model(model), find_gpu(gpu), tp, weights_dtype=dtype)
    step_s = law.step_s(batch * prompt / output, batch, batch * (prompt + output / 2))
    return batch / step_s


# Full batches measured with vLLM on ShareGPT (about 220 tokens in, 200 out) or as said.
THROUGHPUTS = [
    # github.com/LambdaLabsML/vllm-benchmark, benchmark_v0.md, vLLM 0.6.0, at most 256 sequences
    ("llama-3.1-8b", "H100-SXM", 1, "bf16", 256, 220, 200, 8088),
    ("llama-3.1-70b", "H100-SXM", 4, "bf16", 256, 220, 200, 3543),
    ("llama-3.1-405b", "H100-SXM", 8, "fp8", 256, 220, 200, 1714),
    # databasemart.com, "A40 vLLM Benchmark": 50 at once, 100 in, 443 out on average
    ("llama-3.1-8b", "A40", 1, "bf16", 50, 100, 443, 1017),
    ("qwen2.5-7b", "A40", 1, "bf16", 50, 100, 514, 1095),
]


@pytest.mark.parametrize("row", THROUGHPUTS, ids=lambda r: f"{r[0]}-{r[1]}x{r[2]}")
def test_published_throughput_is_within_a_factor_of_two(row: tuple) -> None:  # type: ignore[type-arg]
    *case, measured = row
    assert measured / 2 <= saturated_output_tokens_per_s(*case) <= measured * 2


def test_attention_grows_with_the_square_and_is_bounded_by_a_window() -> None:
    full, windowed = find_model("llama-3-8b"), find_model("gemma-3-27b")
    assert attention_flops(full, 2000) == pytest.approx(4 * attention_flops(full, 1000))
    growth = attention_flops(windowed, 32768) / attention_flops(windowed, 16384)
    assert growth < 4


def test_prefill_is_linear_for_short_and_worse_for_long_prompts() -> None:
    replica = deployment_of(find_model("llama-3-8b"), find_gpu("H100-SXM"))
    short, double, long = (prefill_s(replica, n, 8192) for n in (1000, 2000, 128_000))
    assert double == pytest.approx(2 * short, rel=0.1)
    assert long > 150 * short


def test_decode_turns_compute_bound_beyond_the_crossover() -> None:
    replica = deployment_of(find_model("llama-3-8b"), find_gpu("H100-SXM"))
    cross = crossover_batch(replica)
    # bytes ÷ bandwidth = FLOPs ÷ compute at 989 · 0.5 ÷ (3.35 · 0.8) multiply-adds a byte
    assert cross == pytest.approx(989 * 0.5 / (3.35 * 0.8), rel=0.01)
    below, above = (
        decode_step_s(replica, batch + 1, 1) - decode_step_s(replica, batch, 1)
        for batch in (cross / 2, cross * 2)
    )
    assert above > 2 * below


def test_tensor_parallel_across_machines_costs_more_than_inside() -> None:
    inside = deployment_of(find_model("llama-3-70b"), find_gpu("H100-SXM"), Split(8))
    across = replace(inside, tensor_link=inside.stage_link)
    for tokens in (1, 4096):
        assert all_reduce_s(across, tokens) > 3 * all_reduce_s(inside, tokens)
    assert all_reduce_s(replace(inside, split=Split(1)), 4096) == 0


def test_a_pipeline_passes_activations_at_every_border() -> None:
    one, four = (
        deployment_of(find_model("llama-3-70b"), find_gpu("H100-SXM"), Split(8, pp))
        for pp in (1, 4)
    )
    assert stage_send_s(one, 100) == 0
    assert stage_send_s(four, 100) == pytest.approx(3 * (35e-6 + 100 * 8192 * 2 / 40e9))


def test_the_pipeline_bubble_shrinks_with_more_micro_batches() -> None:
    assert pipeline_bubble_ratio(1, 1) == 0
    assert pipeline_bubble_ratio(4, 1) == 0.75
    assert pipeline_bubble_ratio(4, 12) == 0.2
