"""Short versions of benchmarks/decisions: the real Router and engine models, in simulated time."""

from collections import Counter

import pytest
from decisions.run import Run
from decisions.scenarios import SCENARIOS

from headrace import Replica, Router, RouteRequest

S = 1_000_000_000


def p99(name, policy, requests, seed=1):
    result = Run(SCENARIOS[name](seed, requests), policy, seed).run()
    assert sum(result.per_replica) >= requests
    return result.percentile(99)


def test_one_slow_replica_of_four_costs_less_than_under_least_load():
    assert p99("slow", "cost_aware", 4000) <= 0.75 * p99("slow", "least_load", 4000)


@pytest.mark.parametrize("name", ["sys", "hot"])
def test_shared_prefixes_are_worth_a_factor_of_ten(name):
    assert p99(name, "cost_aware", 3000) <= 0.1 * p99(name, "least_load", 3000)


def test_a_crash_loses_no_request_and_the_replica_is_used_again():
    result = Run(SCENARIOS["crash"](1, 3000), "cost_aware", 1).run()
    assert sum(result.per_replica) >= 3000
    assert result.per_replica[0] > 3000 / 8 / 4


@pytest.mark.parametrize("policy", ["cost_aware", "least_load"])
@pytest.mark.parametrize("shown", [(0, 1), (0, 0)])
def test_a_burst_of_forty_between_two_scrapes_spreads(policy, shown):
    router = Router([Replica(f"http://h{n}:1") for n in range(2)], policy, prefix_table_bytes=65536)
    for n, running in enumerate(shown):
        router.update(f"http://h{n}:1", running=running, waiting=0, now_ns=S)
    held = [router.route(RouteRequest("m", prompt_tokens=50), S + n * 2_000_000) for n in range(40)]
    counts = Counter(lease.replica.url for lease in held)
    assert abs(counts["http://h0:1"] - counts["http://h1:1"]) <= 4


def test_our_own_requests_in_the_gauges_are_not_counted_twice():
    router = Router([Replica(f"http://h{n}:1") for n in range(2)], prefix_table_bytes=65536)
    held = [router.route(RouteRequest("m", prompt_tokens=50), S) for _ in range(24)]
    counts = Counter(lease.replica.url for lease in held)
    for n in range(2):
        ours = counts[f"http://h{n}:1"]
        router.update(f"http://h{n}:1", running=ours, waiting=0, now_ns=2 * S)
    held += [router.route(RouteRequest("m", prompt_tokens=50), 2 * S) for _ in range(20)]
    counts = Counter(lease.replica.url for lease in held)
    assert abs(counts["http://h0:1"] - counts["http://h1:1"]) <= 4
