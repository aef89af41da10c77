"""The queueing model: against the engine of the simulator, and what must always hold."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import p95_latencies

from headrace.plan.catalog import find_model
from headrace.plan.demand import Slo, Traffic
from headrace.plan.gpus import find_gpu
from headrace.plan.latency import capacity_per_s, latency_at, lengths_like
from headrace.plan.queueing import full_step_s, largest_batch, saturation_rate_per_s
from headrace.plan.steplaw import StepLaw, step_law


def law_of(model: str, gpu: str, tp: int = 1) -> StepLaw:
    return step_law(find_model(model), find_gpu(gpu), tp)


def traffic(prompt: float, output: float, cv: float = 0.0, shared: float = 0.0) -> Traffic:
    return Traffic(
        rate_per_s=1, input_tokens=prompt, output_tokens=output, input_cv=cv, output_cv=cv,
        hit_ratio=shared, shared_ratio=shared,
    )  # fmt: skip


# name: (law, requests, SLO); the term that binds is in the name
CASES = {
    "chat, TPOT": (
        law_of("llama-3-8b", "H100"), traffic(1000, 200, 1.0), Slo(ttft_s=1, tpot_s=0.03)
    ),
    "chat of one length, TTFT": (
        law_of("llama-3-8b", "H100"), traffic(1000, 200), Slo(ttft_s=0.1, tpot_s=0.05)
    ),
    "small cache, a place": (
        law_of("llama-2-7b", "A10"), traffic(500, 200, 0.5), Slo(ttft_s=1, tpot_s=0.08)
    ),
    "long prompts, TPOT": (
        law_of("llama-3-8b", "H100"), traffic(8000, 300, 0.7), Slo(ttft_s=3, tpot_s=0.03)
    ),
    "long answers, TPOT": (
        law_of("llama-3-70b", "H100", 4), traffic(200, 800, 0.6), Slo(ttft_s=1, tpot_s=0.04)
    ),
    "shared prefixes, TTFT": (
        law_of("llama-3-70b", "H100", 8), traffic(4000, 400, 1.0, 0.5), Slo(ttft_s=0.7)
    ),
    "no SLO, saturation": (law_of("llama-2-7b", "A10"), traffic(500, 200, 0.5), Slo(ttft_s=30)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_capacity_is_within_15_percent_of_a_simulated_engine(case: str) -> None:
    law, requests, slo = CASES[case]
    rate = capacity_per_s(law, requests, slo)
    assert rate > 0

    def keeps(at: float) -> bool:
        ttft_s, tpot_s = p95_latencies(law, requests.at(at))
        return ttft_s <= (slo.ttft_s or math.inf) and tpot_s <= (slo.tpot_s or math.inf)

    assert keeps(rate * 0.85)
    assert not keeps(rate * 1.15)


@pytest.mark.parametrize("utilization", [0.2, 0.5, 0.7])
@pytest.mark.parametrize("case", [c for c in CASES if "place" not in c and "saturation" not in c])
def test_latencies_are_within_a_quarter_of_a_simulated_engine(
    case: str, utilization: float
) -> None:
    law, requests, _ = CASES[case]
    at = requests.at(saturation_rate_per_s(law, requests) * utilization)
    found = latency_at(law, at)
    assert found is not None
    ttft_s, tpot_s = p95_latencies(law, at, seed=2)
    assert found.ttft_s == pytest.approx(ttft_s, rel=0.25)
    assert found.tpot_s == pytest.approx(tpot_s, rel=0.25)
    assert found.utilization == pytest.approx(utilization)


def test_a_lone_request_waits_for_no_one() -> None:
    law, requests = law_of("llama-3-8b", "H100"), traffic(1000, 200)
    found = latency_at(law, requests.at(1e-6))
    assert found is not None
    own_s = law.step_s(prefill_tokens=1000)
    assert own_s <= found.ttft_s <= own_s + 2 * law.base_s
    assert found.tpot_s == pytest.approx(law.step_s(0, 1, 1100), rel=0.05)


def test_shared_prefixes_free_cache_and_prefill() -> None:
    law = law_of("llama-2-7b", "A10")
    plain = traffic(1000, 100)
    shared = Traffic(
        rate_per_s=1, input_tokens=1000, output_tokens=100, hit_ratio=0.8, shared_ratio=0.8
    )
    assert largest_batch(law, shared) > 2 * largest_batch(law, plain)
    assert saturation_rate_per_s(law, shared) > 2 * saturation_rate_per_s(law, plain)


def test_the_token_budget_bounds_the_batch_of_long_prompts() -> None:
    law = law_of("llama-3-8b", "H100")
    requests = traffic(8000, 50)
    batch = largest_batch(law, requests)
    assert batch * (1 + 8000 / 50) <= law.batched_tokens
    assert full_step_s(law, requests, batch) > law.per_prefill_token_s * 0.9 * law.batched_tokens


def test_nothing_fits_means_no_rate_and_no_latency() -> None:
    law = law_of("llama-3-70b", "A10")
    assert law.kv_capacity_tokens == 0
    assert largest_batch(law, traffic(100, 100)) == 0
    assert saturation_rate_per_s(law, traffic(100, 100)) == 0
    assert latency_at(law, traffic(100, 100)) is None
    assert capacity_per_s(law, traffic(100, 100), Slo(ttft_s=1)) == 0


def test_an_impossible_slo_has_no_capacity() -> None:
    law = law_of("llama-3-8b", "H100")
    assert capacity_per_s(law, traffic(1000, 200), Slo(tpot_s=0.001)) == 0
    assert capacity_per_s(law, traffic(1000, 200), Slo(ttft_s=0.01)) == 0


@pytest.mark.parametrize("cv", [0.0, 0.3, 1.0, 1.5])
def test_lengths_like_have_the_wanted_mean(cv: float) -> None:
    lengths = lengths_like(500, cv, 400)
    assert sum(lengths) / len(lengths) == pytest.approx(500, rel=0.05)


laws = st.builds(
    StepLaw,
    base_s=st.floats(1e-3, 0.2),
    per_prefill_token_s=st.floats(1e-7, 1e-3),
    per_sequence_s=st.floats(1e-6, 1e-3),
    per_context_token_s=st.floats(1e-9, 1e-5),
    kv_capacity_tokens=st.integers(0, 10_000_000),
    max_num_seqs=st.integers(1, 1024),
    batched_tokens=st.sampled_from([2048, 8192, 16384]),
)
requests_of = st.builds(
    Traffic,
    rate_per_s=st.floats(1e-6, 1e4),
    input_tokens=st.floats(1, 1e6),
    output_tokens=st.floats(1, 1e5),
    input_cv=st.floats(0, 3),
    output_cv=st.floats(0, 3),
    hit_ratio=st.floats(0, 1),
    shared_ratio=st.floats(0, 1),
)


@settings(max_examples=150, deadline=None)
@given(laws, requests_of, st.floats(0.01, 0.98), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_latencies_are_finite_positive_and_grow_with_the_rate(
    law: StepLaw, requests: Traffic, utilization: float, percentile: float
) -> None:
    limit = saturation_rate_per_s(law, requests)
    assert limit >= 0
    if limit == 0:
        return
    found = latency_at(law, requests.at(limit * utilization), percentile)
    lighter = latency_at(law, requests.at(limit * utilization / 2), percentile)
    assert found is not None and lighter is not None
    for latency in (found, lighter):
        assert 0 < latency.tpot_s < math.inf and 0 < latency.ttft_s < math.inf
        assert 0 <= latency.queued_ratio <= 1 and latency.sequences >= 0
    assert found.ttft_s >= lighter.ttft_s * 0.99
    assert found.step_s >= lighter.step_s * 0.99


@settings(max_examples=40, deadline=None)
@given(laws, requests_of, st.floats(1e-4, 60), st.floats(1e-4, 2))
def test_capacity_never_exceeds_saturation_and_a_laxer_slo_never_costs(
    law: StepLaw, requests: Traffic, ttft_s: float, tpot_s: float
) -> None:
    strict = capacity_per_s(law, requests, Slo(ttft_s=ttft_s, tpot_s=tpot_s))
    lax = capacity_per_s(law, requests, Slo(ttft_s=ttft_s * 2, tpot_s=tpot_s * 2))
    assert 0 <= strict <= saturation_rate_per_s(law, requests)
    assert lax >= strict * 0.999
