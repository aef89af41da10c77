import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.foreign import Foreign, ForeignLoad, foreign_now, neutral


@pytest.mark.parametrize(
    "running, waiting, ours, decoding, seqs, foreign_waiting",
    [
        (20, 0, 0, 0, 20, 0),
        (8, 20, 8, 8, 20, 20),
        (8, 4, 12, 8, 0, 0),
        (3, 1, 9, 9, 0, 0),
        (16, 10, 6, 2, 20, 6),
    ],
)
def test_what_is_not_ours_is_foreign_and_never_negative(
    running, waiting, ours, decoding, seqs, foreign_waiting
):
    assert foreign_now(running, waiting, ours, decoding) == Foreign(seqs, foreign_waiting)


def test_the_first_reading_counts_whole_and_later_ones_by_the_time_constant():
    load = ForeignLoad()
    assert load.update(Foreign(10, 2), 0, 15).seqs == 10
    after = load.update(Foreign(0, 0), 15 * 10**9, 15)
    assert after.seqs == pytest.approx(10 / math.e)
    assert after.waiting == pytest.approx(2 / math.e)
    load.reset()
    assert load.update(Foreign(4, 0), 0, 15).seqs == 4
    assert load.update(Foreign(9, 0), 1, 0).seqs == 9


def test_unknown_load_counts_as_the_mean_of_the_known():
    assert neutral([]) == Foreign()
    assert neutral([Foreign(10, 4), Foreign(20, 0)]) == Foreign(15, 2)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10**10)), min_size=1))
def test_smoothing_stays_within_what_was_read(readings):
    load, now_ns = ForeignLoad(), 0
    for seqs, step_ns in readings:
        now_ns += step_ns
        value = load.update(Foreign(seqs, 0), now_ns, 15)
        assert (
            min(s for s, _ in readings) - 1e-9 <= value.seqs <= max(s for s, _ in readings) + 1e-9
        )
