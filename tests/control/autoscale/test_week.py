"""The simulated week of benchmarks/autoscale_week.py, as a promise."""

import importlib.util
import itertools
import random
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "autoscale_week.py"
spec = importlib.util.spec_from_file_location("autoscale_week", SCRIPT)
week = importlib.util.module_from_spec(spec)
spec.loader.exec_module(week)


def total(results, name, part):
    return sum(r[name][part] for r in results)


SLOW = pytest.mark.slow


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("noise", "seeds", "of_reactive"),
    [
        ("trace", (0,), 0.9),
        pytest.param("trace", (0, 1, 2, 3), 0.8, marks=SLOW),
        pytest.param("bursts", (0, 1, 2, 3), 0.5, marks=SLOW),
    ],
)
def test_the_forecast_is_near_perfect_foresight_and_beats_reaction_alone(noise, seeds, of_reactive):
    results = [week.measure(seed, noise) for seed in seeds]
    hours = total(results, "forecast + reactive", 1)
    missed = total(results, "forecast + reactive", 0)
    assert hours <= 1.15 * total(results, "perfect foresight", 1)
    assert missed <= 1.1 * total(results, "perfect foresight", 0)
    assert missed < of_reactive * total(results, "reactive only", 0)
    assert total(results, "none (sized for the mean)", 0) > 0.1 * len(seeds)


def test_the_noise_of_the_trace_is_about_one_and_never_the_same_hour():
    factors = list(itertools.islice(week.swings(random.Random(1)), 24 * 240))
    assert 0.95 < sum(factors) / len(factors) < 1.05
    assert max(factors) < 1.25
    hours = [tuple(factors[i : i + 240]) for i in range(0, len(factors), 240)]
    assert len(set(hours)) == len(hours)
