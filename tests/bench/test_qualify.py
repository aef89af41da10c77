"""The four numbers of a replica and the verdict they lead to."""

import asyncio

import pytest

from headrace.bench import qualify
from headrace.bench.samples import Sample

FINE = {
    "ttft_s": 0.1,
    "tokens_per_s": 50.0,
    "throughput_at_10": {"tokens_per_s": 400.0, "ttft_p95_s": 0.4, "failed": 0},
    "max_batch": 40,
}


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 16, 100, 1500])
def test_the_largest_batch_is_found_to_ten_percent(limit):
    async def fits(size):
        return size <= limit

    found = asyncio.run(qualify.largest_batch(fits))
    assert found <= limit <= found + max(1, found * 0.1)


def test_the_search_for_a_batch_ends_at_its_bound():
    async def fits(size):
        assert size <= 64
        return True

    assert asyncio.run(qualify.largest_batch(fits, limit=64)) == 64


def sample(first_token_s, end_s, error=None):
    return Sample(0.0, 0.0, 10, first_token_s=first_token_s, end_s=end_s, error=error)


def test_a_batch_fits_if_nobody_waited_for_anothers_end():
    assert qualify.batch_fits([sample(0.1, 1.0), sample(0.9, 1.8)])
    assert not qualify.batch_fits([sample(0.1, 1.0), sample(1.1, 2.0)])
    assert not qualify.batch_fits([sample(0.1, 1.0), sample(None, 0.2, "status_503")])


def test_a_replica_that_copes_stays_on_one_card():
    assert qualify.judge(FINE, slo_ttft_s=1.0)[0] == "stay on one card"


def at_ten(**change):
    return {"throughput_at_10": {**FINE["throughput_at_10"], **change}}


@pytest.mark.parametrize(
    "change, says",
    [
        ({"ttft_s": 1.5}, "a single request waits 1.50 s"),
        ({"max_batch": 6}, "a batch of 6 "),
        (at_ten(tokens_per_s=120.0), "collapses"),
        (at_ten(ttft_p95_s=2.0), "P95 TTFT is 2.00"),
        (at_ten(ttft_p95_s=None, failed=30), "30 of 30"),
    ],
)
def test_each_weakness_speaks_for_more_replicas_with_its_number(change, says):
    verdict, why = qualify.judge({**FINE, **change}, slo_ttft_s=1.0)
    assert verdict == "go multi-replica"
    assert len(why) == 1 and says in why[0]
