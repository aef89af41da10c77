import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.autoscale.policy import (
    Brakes,
    Desire,
    Limits,
    Situation,
    bounded,
    needed,
    provisioned,
    want,
)

LIMITS = Limits()


def test_the_load_stays_below_the_ceiling():
    assert needed(8.0, LIMITS) == 10
    assert needed(8.01, LIMITS) == 11
    assert needed(0.0, LIMITS) == 0


def test_an_expected_load_gets_more_room_than_a_known_one():
    assert provisioned(10.0, LIMITS) == 14
    assert provisioned(10.0, Limits(headroom_ratio=0.0)) == needed(10.0, LIMITS)


@pytest.mark.parametrize(
    ("situation", "replicas", "reason"),
    [
        (Situation(2.0, 0, 4, None), 3, "load"),
        (Situation(2.0, 0, 4, 6.0), 8, "forecast"),
        (Situation(3.0, 40, 10, None), 12, "queue"),
        (Situation(9.0, 0, 10, None), 12, "load"),
        (Situation(8.1, 0, 10, None), 12, "utilization"),
        (Situation(5.0, 0, 0, None), 7, "load"),
    ],
)
def test_the_largest_claim_wins_and_is_named(situation, replicas, reason):
    assert want(situation, LIMITS) == Desire(replicas, reason)


def test_shrinking_waits_for_the_window_and_goes_by_steps():
    brakes, limits = Brakes(0.0), Limits(down_window_s=600, down_step=2)
    assert brakes.apply(Desire(4, "load"), 10, limits, 0.0) == Desire(10, "hold")
    assert brakes.apply(Desire(12, "load"), 10, limits, 300.0) == Desire(12, "load")
    assert brakes.apply(Desire(4, "load"), 12, limits, 890.0) == Desire(12, "hold")
    assert brakes.apply(Desire(4, "load"), 12, limits, 901.0) == Desire(10, "load")
    assert brakes.apply(Desire(9, "load"), 10, limits, 902.0) == Desire(9, "load")


@given(
    st.lists(st.tuples(st.floats(0, 60), st.integers(0, 50)), max_size=60),
    st.integers(0, 5),
    st.integers(5, 60),
)
def test_the_answer_is_bounded_and_never_below_what_is_in_flight(steps, minimum, maximum):
    limits = Limits(minimum=minimum, maximum=maximum, down_window_s=60)
    brakes, current, now_s = Brakes(0.0), minimum, 0.0
    for load, queued in steps:
        now_s += 10
        desire = want(Situation(load, queued, current, None), limits)
        final = bounded(brakes.apply(desire, current, limits, now_s), limits)
        assert minimum <= final.replicas <= maximum
        assert final.replicas >= min(needed(load, limits), maximum)
        assert final.replicas >= current - limits.down_step or final.reason == "maximum"
        current = final.replicas
