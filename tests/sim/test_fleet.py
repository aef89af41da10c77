"""The simulator drives the real router: determinism, conservation, faults, worth of policies."""

import json

import msgspec
import pytest

from headrace.bench.traces import EXCERPT
from headrace.sim.command import figures, simulate
from headrace.sim.scenario import (
    Event,
    Replicas,
    Scenario,
    ScenarioError,
    Traffic,
    load,
    parse,
    shipped,
)
from headrace.sim.traffic import is_trace, requests_of, source_of


def short(name, requests, **changes):
    scenario = load(name)
    if is_trace(scenario.traffic):  # which the package does not bring along
        changes["dataset"] = str(EXCERPT)
    traffic = msgspec.structs.replace(scenario.traffic, requests=requests, **changes)
    return msgspec.structs.replace(scenario, traffic=traffic)


def p99(outcome):
    return sorted(outcome.ttft_s)[int(0.99 * (len(outcome.ttft_s) - 1))]


def test_the_same_seed_gives_the_same_figures_and_another_seed_others():
    scenario = short("sys", 600)
    first, again, other = (simulate(scenario, "cost_aware", seed) for seed in (1, 1, 2))
    assert figures(scenario, "cost_aware", first) == figures(scenario, "cost_aware", again)
    assert first.ttft_s != other.ttft_s


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_scenario_runs_and_loses_count_of_nothing(name):
    scenario = short(name, 400)
    outcome = simulate(scenario, "cost_aware", 0)
    sent = 50 if is_trace(scenario.traffic) else 0.9 * 400
    assert outcome.finished + outcome.rejected + outcome.lost >= sent
    assert sum(outcome.requests) >= len(outcome.ttft_s)
    assert min(outcome.ttft_s) >= 0
    assert all(e2e >= ttft for e2e, ttft in zip(outcome.e2e_s, outcome.ttft_s, strict=True))
    assert 0 <= min(outcome.busy_ratio) <= max(outcome.busy_ratio) <= 1
    json.dumps(figures(scenario, "cost_aware", outcome), allow_nan=False)


def test_feedback_spares_the_slow_replica():
    scenario = short("slow-node", 3000)
    results = {p: simulate(scenario, p, 0) for p in ("cost_aware", "round_robin")}
    assert p99(results["cost_aware"]) <= 0.2 * p99(results["round_robin"])
    slow = results["cost_aware"].requests[3]
    assert slow < 0.8 * max(results["cost_aware"].requests)


def test_affinity_is_worth_cache_hits():
    scenario = short("sys", 2000)
    ours, blind = simulate(scenario, "cost_aware", 0), simulate(scenario, "least_load", 0)
    assert ours.hit_tokens > 1.2 * blind.hit_tokens


def test_a_dead_replica_costs_its_own_requests_and_no_others():
    traffic = Traffic(requests=1500, rate=40, input_tokens=500, output_tokens=50)
    events = [Event(10.0, "kill", 1), Event(20.0, "restart", 1)]
    scenario = Scenario([Replicas(4)], traffic, events=events, warmup_ratio=0.0)
    outcome = simulate(scenario, "cost_aware", 0)
    assert 0 < outcome.lost < 60
    assert outcome.finished + outcome.lost == 1500
    assert outcome.requests[1] > 0.1 * 1500


def test_chats_are_closed_loops_with_growing_prompts():
    scenario = short("multi", 500, users=20)
    source = source_of(scenario, 0)
    assert len(list(source.start())) == 20
    outcome = simulate(scenario, "cost_aware", 0)
    assert outcome.finished == 500
    assert outcome.hit_tokens > 0.4 * outcome.prompt_tokens


def test_gateways_that_hear_the_engines_find_what_the_others_sent():
    hit_ratios = []
    for kv_events in (False, True):
        scenario = msgspec.structs.replace(short("multi", 1500), gateways=4, kv_events=kv_events)
        outcome = simulate(scenario, "cost_aware", 0)
        hit_ratios.append(outcome.hit_tokens / outcome.prompt_tokens)
    alone = simulate(short("multi", 1500), "cost_aware", 0)
    best = alone.hit_tokens / alone.prompt_tokens
    assert hit_ratios[0] < best - 0.05
    assert hit_ratios[1] > best - 0.02


def test_several_gateways_share_the_requests():
    scenario = msgspec.structs.replace(short("slow-node", 800), gateways=3)
    outcome = simulate(scenario, "cost_aware", 0)
    assert outcome.finished == 800


def test_admission_limits_refuse_instead_of_queueing():
    traffic = Traffic(requests=600, rate=200, output_tokens=400)
    scenario = Scenario([Replicas(1)], traffic, router={"max_concurrency": 20}, warmup_ratio=0.0)
    outcome = simulate(scenario, "least_load", 0)
    assert outcome.rejected > 100
    assert outcome.finished + outcome.rejected == 600


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("replicas: [{preset: nope}]\ntraffic: {}", "nope"),
        ("replicas: [{count: 2000}]\ntraffic: {}", "2000"),
        ("traffic: {}", "replicas"),
        ("replicas: [{}]\ntraffic: {rte: 5}", "rte"),
        ("replicas: [{}]\ntraffic: {}\nevents: [{at_s: 1, action: slow, replica: 7}]", "7"),
        ("replicas: [", "line"),
    ],
)
def test_bad_scenarios_name_the_key(text, named):
    with pytest.raises(ScenarioError, match=named):
        parse(text, "bad")


def test_copies_of_a_trace_come_at_once_and_share_nothing():
    traffic = Traffic(dataset=str(EXCERPT), requests=90, rate=30.0, copies=3)
    requests = list(requests_of(traffic, 0))
    assert len(requests) == 90
    assert [r.at_s for r in requests] == sorted(r.at_s for r in requests)
    one = list(requests_of(Traffic(dataset=str(EXCERPT), requests=30, rate=10.0), 0))
    lengths = sorted(r.job.prompt_tokens for r in requests)
    assert lengths == sorted(3 * [r.job.prompt_tokens for r in one])
    keys = {key for r in requests for key, *_ in r.job.prompt}
    assert len(keys) == 3 * len({key for r in one for key, *_ in r.job.prompt})
