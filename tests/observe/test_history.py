import pytest

from headrace.observe.history import mean, percentile

BOUNDS = [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("counts", "q", "wanted"),
    [
        ([10, 0, 0, 0], 0.5, 0.5),
        ([0, 10, 0, 0], 0.5, 1.5),
        ([5, 5, 0, 0], 0.95, 1.9),
        ([0, 0, 0, 3], 0.95, 4.0),
        ([0, 0, 0, 0], 0.95, None),
    ],
)
def test_percentiles_interpolate_inside_the_bucket(counts, q, wanted):
    assert percentile(BOUNDS, counts, q) == (None if wanted is None else pytest.approx(wanted))


def test_the_mean_leaves_out_what_is_unknown():
    assert mean([None, float("nan"), 0.2, 0.4]) == pytest.approx(0.3)
    assert mean([None]) is None
