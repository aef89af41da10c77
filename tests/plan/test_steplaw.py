"""The step-time law: near the study's coefficients, and true to the roofline it comes from."""

import pytest

from headrace.plan.catalog import find_model
from headrace.plan.gpus import find_gpu
from headrace.plan.memory import Split
from headrace.plan.roofline import Efficiency, crossover_batch, decode_step_s
from headrace.plan.steplaw import machine_of, step_law

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
    model, gpu = find_model("llama-3-8b"), find_gpu("H100-SXM")
    machine = machine_of(gpu, Split())
    batch = 2 * crossover_batch(model, machine, "bf16")
    law = step_law(model, gpu)
    roof_s = decode_step_s(model, machine, "bf16", "bf16", batch, 1)
    assert law.step_s(0, batch, batch) == pytest.approx(roof_s, rel=0.01)


def test_better_efficiency_is_never_slower() -> None:
    model, gpu = find_model("mixtral-8x7b"), find_gpu("H100-SXM")
    fast = step_law(model, gpu, 2, efficiency=Efficiency(bandwidth_ratio=0.9, compute_ratio=0.65))
    slow = step_law(model, gpu, 2)
    assert fast.step_s(100, 10, 1000) < slow.step_s(100, 10, 1000)
