import json

import pytest

from headrace.control.autoscale.wishes import AGAIN_S, PREFIX, STALE_S, Wish, Wishes


def wish(at="t0", **desired):
    return Wish("pod", at, desired)


def say(own, annotations, now_s, at="t0", **desired):
    return Wishes(own).spoken(annotations, wish(at, **desired), now_s)


def test_the_most_that_any_other_wants_counts_and_ones_own_does_not():
    said = say("c", say("b", say("a", {}, 0.0, m=9), 0.0, m=2, n=1), 0.0, m=3)
    heard = Wishes("a")
    heard.hear({**said, "team": "x"}, 0.0)
    assert heard.most(0.0) == {"m": 3, "n": 1}


def test_a_wish_counts_while_it_is_repeated():
    heard = Wishes("a")
    heard.hear(say("b", {}, 0.0, "t0", m=2), 0.0)
    heard.hear(say("b", {}, 0.0, "t0", m=2), STALE_S - 1)
    assert heard.most(STALE_S - 1) == {"m": 2}
    assert heard.most(STALE_S) == {}
    heard.hear(say("b", {}, 0.0, "t1", m=2), STALE_S)
    assert heard.most(2 * STALE_S - 1) == {"m": 2}
    heard.hear({}, 2 * STALE_S - 1)
    assert heard.most(2 * STALE_S - 1) == {}


def test_stale_wishes_are_swept_and_what_is_not_ours_stays():
    own = Wishes("a")
    there = say("b", {"team": "x"}, 0.0, m=2)
    own.hear(there, 0.0)
    assert own.tidy(there, STALE_S - 1) == there
    assert own.tidy(there, STALE_S) == {"team": "x"}
    assert own.tidy(own.spoken(there, wish(), 0.0), 0.0) == there


def test_a_wish_is_said_when_it_is_new_and_again_while_it_lasts():
    own, there = Wishes("a"), {PREFIX + "a": "{}"}
    assert own.is_due({"m": 1}, there, 0.0)
    own.said({"m": 1}, 0.0)
    assert not own.is_due({"m": 1}, there, AGAIN_S - 1)
    assert own.is_due({"m": 2}, there, 1.0)
    assert own.is_due({"m": 1}, {}, 1.0), "somebody has swept it"
    assert own.is_due({"m": 1}, there, AGAIN_S)


@pytest.mark.parametrize(
    "text", ["", "x", "3", "{}", json.dumps({"gateway": "g", "at": "t", "desired": {"m": "two"}})]
)
def test_nonsense_is_no_wish(text):
    heard = Wishes("a")
    heard.hear({PREFIX + "b": text}, 0.0)
    assert heard.most(0.0) == {}
