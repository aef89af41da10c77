"""The limits that the routing promises, in short versions of its scenarios."""

import msgspec
import pytest
import quality

from headrace.core.balancer import POLICIES
from headrace.sim.command import simulate


@pytest.mark.parametrize(("name", "requests"), [("slow", 3000), ("sys", 3000), ("hot", 3000)])
def test_cost_aware_keeps_its_limits_against_every_policy(name, requests):
    scenario = quality.shortened(quality.scenarios(None)[name], requests)
    found = {name: quality.measure(scenario, 1, list(POLICIES))}
    assert "least_load" in found[name]
    assert quality.missed(found) == []


def test_a_missed_limit_is_named_with_its_numbers():
    found = {
        "slow": {"cost_aware": 0.80, "least_load": 1.0, "random": 0.9},
        "burst": {"cost_aware": 1.2, "least_load": 1.0},
        "crash": {"cost_aware": 1.0, "least_load": 1.0},
    }
    slow, burst = quality.missed(found)
    assert slow == "slow: cost_aware is 0.80 x least_load, the limit is 0.75"
    assert burst == "burst: cost_aware is 1.20 x least_load, the limit is 1.1"


def test_the_table_shows_ratios_to_the_best_and_its_milliseconds():
    found = {"sys": {"a": 0.1, "b": 20.0}, "hot": {"a": 0.2, "b": 0.2}}
    rows = quality.table(found, ["a", "b"]).splitlines()
    assert rows[2:] == [
        "| a | **1.00** | **1.00** | 1.00 |",
        "| b | 200 | **1.00** | 14.14 |",
        "| *best, ms* | 100 | 200 | |",
    ]


def test_writing_renews_the_table_and_keeps_the_sections_below(tmp_path, monkeypatch):
    document = tmp_path / "decisions.md"
    document.write_text("# Old\n\nold table\n\n## What was tried\n\nkept\n")
    monkeypatch.setattr(quality, "OUTPUT", document)
    quality.write("| new |", 3, "All are kept.")
    text = document.read_text()
    assert "| new |" in text and "old table" not in text
    assert text.endswith("\n\n## What was tried\n\nkept\n")


def test_the_trace_makes_the_tenth_scenario(tmp_path):
    assert len(quality.scenarios(tmp_path)) == 9
    (tmp_path / "azure_llm_2023_conv.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    assert list(quality.scenarios(tmp_path))[-1] == "azure"


def test_gauges_may_arrive_late():
    scenario = quality.shortened(quality.scenarios(None)["slow"], 600)
    fresh = msgspec.structs.replace(scenario, gauge_lag_s=0.0)
    late, now = (simulate(s, "cost_aware", 0) for s in (scenario, fresh))
    assert late.finished == now.finished == 600
    assert late.ttft_s != now.ttft_s
