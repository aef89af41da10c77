"""Figures from samples."""

import pytest
from bench_samples import run_of, sample

from headrace.bench.samples import Sample
from headrace.bench.summary import Objective, distribution, hit_ratio, summarise, warnings


def test_percentiles_of_known_values():
    found = distribution(map(float, range(101)))
    assert found == {"mean": 50, "p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


def test_one_value_is_all_its_percentiles_and_none_is_unknown():
    assert set(distribution([3.0]).values()) == {3.0}
    assert set(distribution([None]).values()) == {None}


def test_requests_are_counted_by_their_end():
    refused = Sample(0.0, 0.0, 100, end_s=0.1, error="status_429", replica="b")
    broken = Sample(0.0, 0.0, 100, end_s=0.1, error="status_500")
    run = run_of([sample(replica="a"), sample(replica="a"), refused, broken])
    found = summarise(run, Objective())
    assert found["requests"] == {"sent": 4, "ok": 2, "failed": 1, "rejected": 1}
    assert found["errors"] == {"status_429": 1, "status_500": 1}
    assert {n: r["requests"] for n, r in found["per_replica"].items()} == {"a": 2, "b": 1}
    assert found["tpot_s"]["p50"] == pytest.approx(0.02)
    assert found["output_tokens_per_s"] == pytest.approx(2.2)
    assert run.record.in_flight == run.record.awaiting == 0


def test_goodput_counts_answers_within_both_objectives():
    run = run_of([sample(), sample(ttft_s=0.9), sample(tpot_s=0.3)])
    assert summarise(run, Objective())["goodput_per_s"] == pytest.approx(0.3)
    assert summarise(run, Objective(ttft_s=0.5))["goodput_per_s"] == pytest.approx(0.2)
    assert summarise(run, Objective(0.5, 0.1))["goodput_per_s"] == pytest.approx(0.1)


def test_cached_tokens_that_nobody_told_are_unknown():
    assert hit_ratio([sample()]) is None
    assert hit_ratio([sample(cached_tokens=50), sample()]) == 0.5


def test_a_busy_harness_and_late_sending_are_called_out():
    run = run_of([sample()])
    assert warnings(summarise(run, Objective())) == []
    run.cpu_s = 9.0
    run.record.samples[0].sent_s += 0.05
    found = warnings(summarise(run, Objective()))
    assert "90% of a core" in found[0]
    assert "50 ms late" in found[1]
