"""The simulated week of benchmarks/autoscale_week.py, as a promise."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "autoscale_week.py"
spec = importlib.util.spec_from_file_location("autoscale_week", SCRIPT)
week = importlib.util.module_from_spec(spec)
spec.loader.exec_module(week)


def total(results, name, part):
    return sum(r[name][part] for r in results)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", [(0,), pytest.param((0, 1, 2, 3), marks=pytest.mark.slow)])
def test_the_forecast_is_near_perfect_foresight_and_beats_reaction_alone(seeds):
    results = [week.measure(seed) for seed in seeds]
    hours = total(results, "forecast + reactive", 1)
    missed = total(results, "forecast + reactive", 0)
    assert hours <= 1.15 * total(results, "perfect foresight", 1)
    assert missed <= 1.1 * total(results, "perfect foresight", 0)
    assert missed < 0.5 * total(results, "reactive only", 0)
    assert total(results, "none (sized for the mean)", 0) > 0.1 * len(seeds)
