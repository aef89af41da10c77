"""The search for the knee, on servers whose knee is known."""

import asyncio

import pytest

from headrace.bench import capacity


def server(knee, calls=None):
    """A measure whose P99 TTFT is 0.1 s up to the knee and 9 s above it."""

    async def measure(rate):
        if calls is not None:
            calls.append(rate)
        return summary(0.1 if rate <= knee else 9.0)

    return measure


def summary(ttft_p99_s, failed=0, rejected=0):
    return {
        "requests": {"sent": 1000, "failed": failed, "rejected": rejected},
        "requests_per_s": 1.0,
        "output_tokens_per_s": 1.0,
        "ttft_s": {"p50": 0.05, "p99": ttft_p99_s},
        "tpot_s": {"p50": 0.01},
    }  # fmt: skip


@pytest.mark.parametrize("knee", [0.7, 3.0, 10.0, 57.0, 1000.0])
def test_the_knee_is_found_to_ten_percent(knee):
    calls = []
    found = asyncio.run(capacity.find(server(knee, calls), 1.0, slo_ttft_s=1.0))
    assert knee / 1.1 <= found.rate <= knee
    assert found.document()["safe_rate"] == pytest.approx(0.8 * found.rate)
    assert len(calls) == len(found.steps) <= capacity.MAX_STEPS


def test_a_server_that_never_holds_has_no_capacity():
    found = asyncio.run(capacity.find(server(0.0), 1.0, slo_ttft_s=1.0))
    assert found.document()["rate"] is None
    assert found.document()["safe_rate"] is None


def test_lost_requests_break_a_rate_even_if_the_others_are_fast():
    assert capacity.holds(summary(0.1, failed=10), 1.0)
    assert not capacity.holds(summary(0.1, failed=6, rejected=6), 1.0)
    assert not capacity.holds(summary(None), 1.0)
