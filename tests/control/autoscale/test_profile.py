from hypothesis import given
from hypothesis import strategies as st

from headrace.control.autoscale import trend
from headrace.control.autoscale.policy import Limits
from headrace.control.autoscale.profile import BINS_PER_DAY, BINS_PER_WEEK, usual_load
from headrace.control.autoscale.scaler import Scaler, StartTimes

NOW = 10 * BINS_PER_WEEK


def wave(at):
    return 5.0 + (at % BINS_PER_DAY) / BINS_PER_DAY + (10.0 if at % BINS_PER_WEEK < 100 else 0.0)


def past(days):
    return {b: wave(b) for b in range(NOW - days * BINS_PER_DAY, NOW)}


def test_without_a_past_nothing_is_usual():
    assert usual_load({}, NOW) is None
    assert usual_load({NOW: 5.0, NOW + 1: 5.0}, NOW) is None


def test_weeks_tell_mondays_from_other_days():
    monday, tuesday = NOW + 50, NOW + 50 + BINS_PER_DAY
    history = past(28)
    assert abs(usual_load(history, monday) - wave(monday)) < 0.1
    assert abs(usual_load(history, tuesday) - wave(tuesday)) < 0.1


def test_one_day_of_history_is_enough_for_a_first_guess():
    at = NOW + 200
    assert abs(usual_load(past(1), at) - wave(at)) < 0.1


@given(st.sets(st.integers(0, 27), max_size=9), st.integers(0, BINS_PER_DAY - 1))
def test_outliers_in_a_third_of_the_days_and_gaps_do_not_move_the_median(days, hour):
    history = past(28)
    at = NOW + 150  # a moment that no weekly peak touches
    for day in days:
        if day % 3 == 0:
            history[NOW - day * BINS_PER_DAY - 1] = 1000.0
    history.pop(at - BINS_PER_WEEK - hour, None)
    assert abs(usual_load(history, at) - wave(at)) < 0.2


def test_a_lasting_deviation_is_carried_forward():
    assert abs(trend.deviation([3.0] * 24, 2) - 3.0) < 0.2
    assert trend.deviation([], 2) == 0.0
    assert trend.deviation([1.0, 2.0, 3.0], 1) == 2.0


def test_start_times_are_learned_on_the_safe_side():
    starts = StartTimes(180.0)
    starts.add(100.0)
    assert starts.expected_s == 180.0
    for seconds in (60.0, 80.0, 90.0, 70.0):
        starts.add(seconds)
    assert 80.0 <= starts.expected_s <= 100.0


def test_capacity_is_asked_for_before_the_usual_peak():
    history = {
        b: 20.0 if 100 <= b % BINS_PER_DAY < 120 else 2.0
        for b in range(NOW - 14 * BINS_PER_DAY, NOW + 80)
    }
    scaler = Scaler(Limits(), (NOW + 80) * 300.0, history=history, lead_s=1800.0)
    quiet = scaler.decide((NOW + 80) * 300.0, 2.0, 0, 3)
    assert quiet.desired == 3
    ahead = scaler.decide((NOW + 95) * 300.0, 2.0, 0, 3)
    assert ahead.desired >= 25
    assert ahead.reason == "forecast"
