"""Reading a stream: the same result however the bytes are cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.events import Events, error_name

STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
    b": a comment\n\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":" two"},"finish_reason":"length"}]}\r\n\r\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
    b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_a_stream_reads_the_same_however_it_is_cut(cuts):
    events = Events()
    places = sorted({0, *cuts, len(STREAM)})
    contents = sum(events.feed(STREAM[start:end]) for start, end in pairwise(places))
    assert contents == events.contents == 2
    assert events.complete and events.error is None
    assert (events.prompt_tokens, events.completion_tokens, events.cached_tokens) == (7, 2, 4)


def test_a_stream_without_its_end_is_not_complete():
    events = Events()
    events.feed(STREAM.replace(b"data: [DONE]\n\n", b""))
    assert events.finished and not events.complete


def test_an_error_event_is_named_by_its_code():
    events = Events()
    events.feed(b'data: {"error": {"message": "full", "type": "x", "code": 503}}\n\n')
    events.feed(b"data: [DONE]\n\n")
    assert events.error == "503"


def test_an_event_that_is_no_json_is_an_error():
    events = Events()
    events.feed(b"data: {broken\n\n")
    assert events.error == "bad_event"


def test_error_names_are_short_and_plain():
    assert error_name({"type": "Upstream Error\n", "code": None}) == "upstream_error"
    assert len(error_name({"code": "x" * 500})) == 40
    assert error_name("Unauthorized") == "unauthorized"
    assert error_name({}) == "error"
