"""Choices between two scrapes: what we sent ourselves counts, and counts once."""

from collections import Counter

import pytest

from headrace import Replica, Router, RouteRequest

S = 1_000_000_000


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
