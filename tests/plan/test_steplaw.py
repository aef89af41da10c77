"""The step-time law: near the study's coefficients, and true to the roofline it comes from."""

import pytest
from msgspec.structs import replace

from headrace.plan.catalog import find_model
from headrace.plan.deployment import Efficiency, Split, deployment_of
from headrace.plan.gpus import find_gpu
from headrace.plan.roofline import crossover_batch, decode_step_s
from headrace.plan.steplaw import law_of, step_law

# Coefficients that the routing study used, from published figures: base ms, a µs, b µs, c µs, KV.
STUDY = [
    ("llama-3-8b", "H100-SXM", 6.5, 28, 25, 0.055, 384_000),
    ("llama-2-7b", "A10", 24, 230, 100, 1.1, 13_600),
]


@pytest.mark.parametrize("row", STUDY, ids=lambda r: f"{r[0]}-{r[1]}")
def test_the_law_is_within_a_quarter_of_the_coefficients_of_the_study(row: tuple) -> None:  # type: ignore[type-arg]
    model, gpu, base_ms, prefill_us, sequence_us, context_us, kv = row
    law = step_law(find_model(model), find_gpu(gpu))
    found = (
        law.base_s * 1e3,
        law.per_prefill_token_s * 1e6,
        law.per_sequence_s * 1e6,
        law.per_context_token_s * 1e6,
        law.kv_capacity_tokens,
    )
    assert found == pytest.approx((base_ms, prefill_us, sequence_us, context_us, kv), rel=0.25)


def test_the_law_is_exact_at_twice_the_crossover() -> None:
    replica = deployment_of(find_model("llama-3-8b"), find_gpu("H100-SXM"))
    batch = 2 * crossover_batch(replica)
    roof_s = decode_step_s(replica, batch, 1)
    assert law_of(replica).step_s(0, batch, batch) == pytest.approx(roof_s, rel=0.01)


def test_better_efficiency_is_never_slower() -> None:
    slow = deployment_of(find_model("mixtral-8x7b"), find_gpu("H100-SXM"), Split(2))
    fast = replace(slow, efficiency=Efficiency(bandwidth_ratio=0.9, compute_ratio=0.65))
    assert law_of(fast).step_s(100, 10, 1000) < law_of(slow).step_s(100, 10, 1000)


def test_quadratic_attention_makes_tokens_of_long_prompts_dearer() -> None:
    replica = deployment_of(find_model("llama-3.1-8b"), find_gpu("H100-SXM"))
    short, long = (law_of(replica, prompt_tokens=n) for n in (1000, 100_000))
    assert long.per_prefill_token_s > 2 * short.per_prefill_token_s


def test_stages_share_the_work_of_a_busy_pipeline() -> None:
    one, two = (step_law(find_model("llama-3-70b"), find_gpu("H100-SXM"), 8, pp) for pp in (1, 2))
    assert one.per_prefill_token_s / 2 < two.per_prefill_token_s < one.per_prefill_token_s
    assert two.per_context_token_s == pytest.approx(one.per_context_token_s / 2)
    assert two.base_s > one.base_s  # a token passes all stages
    assert two.kv_capacity_tokens > 2 * one.kv_capacity_tokens
