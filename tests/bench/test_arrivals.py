"""Arrival times: increasing, seeded, and at the mean rate that was asked for."""

import random
import statistics
from itertools import islice, pairwise, takewhile

import pytest

from headrace.bench import arrivals

DURATION_S = 400.0


@pytest.mark.parametrize("name", arrivals.NAMES)
def test_arrivals_increase_at_the_mean_rate(name):
    times = arrivals.make(name, 20.0, random.Random(3), DURATION_S)
    seen = list(takewhile(lambda at_s: at_s < DURATION_S, times))
    assert all(a <= b for a, b in pairwise(seen))
    assert len(seen) / DURATION_S == pytest.approx(20, rel=0.05)


@pytest.mark.parametrize("name", arrivals.NAMES)
def test_the_same_seed_gives_the_same_times(name):
    first, second = (arrivals.make(name, 5.0, random.Random(1), 60.0) for _ in range(2))
    assert list(islice(first, 100)) == list(islice(second, 100))


def test_poisson_gaps_vary_as_much_as_their_mean():
    gaps = [b - a for a, b in pairwise(islice(arrivals.poisson(10.0, random.Random(2)), 5000))]
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(1, rel=0.05)


def test_bursts_bring_three_times_the_rate_for_a_fifth_of_the_time():
    times = takewhile(lambda at_s: at_s < DURATION_S, arrivals.bursts(20.0, random.Random(2)))
    inside = sum(at_s % arrivals.BURST_CYCLE_S < 2 for at_s in times)
    assert inside / (DURATION_S / 5) == pytest.approx(60, rel=0.05)


def test_a_ramp_is_slow_first_and_fast_last():
    times = list(islice(arrivals.ramp(10.0, random.Random(2), 100.0), 900))
    assert times[100] - times[0] > 3 * (times[899] - times[799])
