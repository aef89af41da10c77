"""The simulated week of benchmarks/autoscale_week.py, as a promise."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "autoscale_week.py"
spec = importlib.util.spec_from_file_location("autoscale_week", SCRIPT)
week = importlib.util.module_from_spec(spec)
spec.loader.exec_module(week)


@pytest.mark.timeout(120)
def test_the_forecast_is_near_perfect_foresight_and_beats_reaction_alone():
    results = week.measure(seed=3)
    missed, hours = results["forecast + reactive"]
    foresight_missed, foresight_hours = results["perfect foresight"]
    assert hours <= 1.15 * foresight_hours
    assert missed <= 1.1 * foresight_missed
    assert missed < 0.5 * results["reactive only"][0]
    assert results["none (sized for the mean)"][0] > 0.1
