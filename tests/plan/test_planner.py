"""Plans: the split, the number of replicas, and what must hold over all questions."""

import math
import re
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from plan_asks import ask

from headrace.plan.catalog import MODELS
from headrace.plan.cautions import warnings_of
from headrace.plan.decision import decide
from headrace.plan.demand import Traffic
from headrace.plan.deployment import Split
from headrace.plan.document import plan_document
from headrace.plan.explain import explain
from headrace.plan.gpus import GPUS
from headrace.plan.html import page
from headrace.plan.names import PlanError
from headrace.plan.planner import plan
from headrace.plan.precision import DTYPES
from headrace.plan.slo import NoSplit, SloImpossible


def test_eighty_h100_are_ten_machines_of_one_group_each() -> None:
    answer = plan(ask("llama-3-70b", "H100", cards=80))
    assert answer.fleet is not None
    assert (answer.replica.split, answer.fleet.replicas, answer.hosts) == (Split(8), 10, 10)


def test_replicas_grow_with_rate_headroom_and_a_spare() -> None:
    def replicas(**more: Any) -> int:
        answer = plan(ask("llama-3-8b", "H100", ttft_s=1, tpot_s=0.04, tp=1, **more))
        assert answer.fleet is not None
        return answer.fleet.replicas

    one = replicas(rate=10)
    assert 7 * one <= replicas(rate=100) <= 10 * one
    assert replicas(rate=100, headroom_ratio=1.0) > replicas(rate=100, headroom_ratio=0.0)
    assert replicas(rate=10, always_on=True) == one + 1


def test_the_fleet_keeps_its_promises_with_the_headroom_used_up() -> None:
    question = ask("llama-3-8b", "L40S", rate=50, ttft_s=1, tpot_s=0.05)
    answer = plan(question)
    assert answer.fleet is not None
    assert answer.fleet.latency.ttft_s < 1 and answer.fleet.latency.tpot_s < 0.05
    assert question.demand_per_s <= answer.fleet.capacity_per_s * 1.0001
    assert answer.fleet.utilization <= 0.8


def test_a_pipeline_is_taken_only_when_no_machine_holds_the_model() -> None:
    assert plan(ask("deepseek-v3", "H200")).replica.split == Split(8)
    answer = plan(ask("deepseek-v3", "H100"))
    assert answer.replica.split == Split(8, 2) and answer.hosts_per_replica == 2
    assert any("pipeline of 2 stages" in w for w in warnings_of(answer))


def test_tensor_parallel_over_machines_is_warned_of_and_slower() -> None:
    across = plan(ask("llama-3.1-405b", "H100", tp=16, weights_dtype="fp8"))
    warning = next(w for w in warnings_of(across) if w.startswith("tensor parallel over machines"))
    assert "ib400" in warning and "pp 2" in warning
    inside = plan(ask("llama-3.1-405b", "H100", tp=16, weights_dtype="fp8", gpus_per_host=16))
    assert across.replica.single_step_s > 1.5 * inside.replica.single_step_s
    assert across.replica.capacity_per_s < inside.replica.capacity_per_s / 4


def test_a_named_interconnect_changes_the_price_of_talking() -> None:
    nvlink = plan(ask("llama-3-70b", "H100", tp=8))
    pcie = plan(ask("llama-3-70b", "H100", tp=8, links=("pcie4",)))
    assert pcie.replica.prefill_s > 3 * nvlink.replica.prefill_s
    assert any("pcie4" in warning for warning in warnings_of(pcie))


def test_an_mla_latent_on_every_card_is_pointed_out() -> None:
    assert any("MLA latent" in w for w in warnings_of(plan(ask("deepseek-v3", "H200"))))


def test_too_few_cards_for_the_rate_says_how_many_replicas_it_takes() -> None:
    with pytest.raises(SloImpossible, match=r"need \d+ replicas .* there are cards for 2"):
        plan(ask("llama-3-8b", "H100", rate=500, cards=2, tp=1))


def test_a_cache_that_holds_no_single_sequence_is_no_fit() -> None:
    question = ask("llama-3.1-8b", "A10", context=131072, tp=1)
    with pytest.raises(NoSplit, match="less than one sequence of --context 131072"):
        plan(question)


def test_odd_machines_are_counted_whole() -> None:
    # three cards a machine hold one group of two: the third card stays idle
    answer = plan(ask("llama-2-13b", "A10", rate=3, tp=2, gpus_per_host=3, context=2048))
    assert answer.fleet is not None and answer.hosts == answer.fleet.replicas


@pytest.mark.parametrize(
    ("model", "gpu", "more", "fires"),
    [
        ("llama-3-8b", "H100", {}, set()),
        ("llama-3-70b", "H100", {},
         {"weights_do_not_fit", "throughput_collapses_at_10", "long_context_oom"}),
        ("llama-2-7b", "A10", {"prompt": 2000, "output": 500, "context": 4096},
         {"throughput_collapses_at_10"}),
        ("llama-3.1-8b", "L4", {"context": 131072, "weights_dtype": "int4"},
         {"long_context_oom"}),
        ("llama-3-8b", "H100", {"always_on": True}, {"needs_24x7"}),
    ],
)  # fmt: skip
def test_the_four_signals(model: str, gpu: str, more: dict[str, Any], fires: set[str]) -> None:
    decision = decide(plan(ask(model, gpu, **more)))
    assert {s.name for s in decision.signals if s.fires} == fires
    assert all(any(c.isdigit() for c in s.why) for s in decision.signals[:3])


def test_the_page_needs_nothing_else_and_escapes_names() -> None:
    question = ask("llama-3-8b", "H100", rate=5)
    model = replace(question.model, name="<script>alert(1)</script>", hub="x/<b>")
    answer = plan(replace(question, model=model))
    text = page(answer, decide(answer), warnings_of(answer), explain(answer))
    assert "<script" not in text and "<b>" not in text
    assert text.count("<svg") == 3 and "polyline" in text
    for outside in ("src=", "href=", "@import", "url("):
        assert outside not in text


def test_every_step_of_the_explanation_has_formula_numbers_and_result() -> None:
    for case in (ask("llama-3-70b", "H100", rate=20), ask("deepseek-v3", "H100", rate=1)):
        steps = explain(plan(case))
        assert len(steps) >= 12
        assert all(step.formula and step.numbers and step.result for step in steps)


def figures(value: object) -> list[float]:
    """Every number in a document."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, dict):
        return [n for v in value.values() for n in figures(v)]
    if isinstance(value, list | tuple):
        return [n for v in value for n in figures(v)]
    return []


questions = st.builds(
    ask,
    st.sampled_from(sorted(MODELS)),
    st.sampled_from(sorted(GPUS)),
    rate=st.sampled_from([0.0, 1e-3, 1.0, 50.0, 1e4]),
    prompt=st.sampled_from([1, 100, 1024, 6000]),
    output=st.sampled_from([1, 16, 256, 2000]),
    context=st.sampled_from([8192, 32768]),
    ttft_s=st.sampled_from([None, 0.05, 2.0]),
    tpot_s=st.sampled_from([None, 0.005, 0.1]),
    weights_dtype=st.sampled_from(DTYPES),
    kv_dtype=st.sampled_from(DTYPES),
    gpus_per_host=st.sampled_from([1, 3, 8]),
    headroom_ratio=st.sampled_from([0.0, 0.2, 5.0]),
    always_on=st.booleans(),
    tp=st.sampled_from([None, None, 1, 16]),
    pp=st.sampled_from([None, None, 2]),
    cards=st.sampled_from([None, None, 8, 100]),
)


# A case is whole as it is found; shrinking one takes minutes.
@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(questions, st.floats(0, 3), st.floats(0, 0.99), st.floats(0, 0.99))
def test_a_plan_has_no_figure_that_is_negative_or_none(
    question: Any, cv: float, hit: float, shared: float
) -> None:
    spread: Traffic = replace(
        question.traffic, input_cv=cv, output_cv=cv, hit_ratio=max(hit, shared), shared_ratio=shared
    )
    try:
        answer = plan(replace(question, traffic=spread))
    except PlanError as error:
        assert not re.search(r"\b(nan|inf)\b| -\d", str(error))
        return
    document = plan_document(answer, decide(answer), warnings_of(answer))
    assert all(0 <= n < math.inf for n in figures(document))
    assert answer.replica.memory.kv_capacity_tokens > 0 and answer.replica.law.max_num_seqs >= 1
    assume(answer.fleet is not None)
    assert answer.fleet is not None and answer.fleet.replicas >= 1
    slo = answer.ask.slo
    assert slo.ttft_s is None or answer.fleet.latency.ttft_s <= slo.ttft_s
    assert slo.tpot_s is None or answer.fleet.latency.tpot_s <= slo.tpot_s
