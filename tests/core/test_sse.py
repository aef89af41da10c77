import json
from itertools import pairwise
from pathlib import Path

import pytest
import sse_oracle as oracle
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.sse import EventStream, PlainAnswer

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
USAGE = {"prompt_tokens": 7, "completion_tokens": 12, "total_tokens": 19}
DONE = b"data: [DONE]\n\n"


def event(document, name: str = "", spaced: bool = False, line_end: str = "\n") -> bytes:
    separators = (", ", ": ") if spaced else (",", ":")
    text = json.dumps(document, separators=separators, ensure_ascii=spaced)
    lines = [f"event: {name}"] if name else []
    return (line_end.join([*lines, f"data: {text}"]) + 2 * line_end).encode()


def chunk(content: str, finish: str | None = None, **more) -> dict:
    return {
        "id": "chatcmpl-1",
        "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}],
        **more,
    }


def observe(*pieces: bytes) -> EventStream:
    stream = EventStream()
    for piece in pieces:
        stream.feed(piece)
    return stream


def report(stream: EventStream) -> dict:
    names = (
        "events", "content_events", "finishes", "aborted", "seen", "head", "last", "usage_span",
        "usage",
    )  # fmt: skip
    return {name: getattr(stream, name) for name in names}


CHAT = b"".join(
    [
        event(ROLE),
        event(chunk('é 北 🌍 "error": {"code": 503} \\')),
        b": keep-alive\n\n",
        event(chunk("x", logprobs={"content": [{"token": "}", "bytes": [1, 2]}]}), spaced=True),
        event(chunk("", "length")),
        event({"choices": [], "usage": USAGE | {"prompt_tokens_details": {"cached_tokens": 4}}}),
        DONE,
    ]
)
MESSAGES = b"".join(
    [
        event(
            {"type": "message_start", "message": {"usage": {"input_tokens": 9}}}, "message_start"
        ),
        event({"type": "ping"}, "ping"),
        event({"type": "content_block_start", "content_block": {"text": ""}}),
        event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}),
        event({"type": "content_block_stop"}, "content_block_stop"),
        event(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 5},
            }
        ),
        event({"type": "message_stop"}, "message_stop"),
    ]
)
RESPONSES = b"".join(
    [
        event({"response": {"status": "in_progress", "usage": None}, "type": "response.created"}),
        event({"response": {"error": None}, "type": "response.in_progress"}),
        event({"item": {"role": "assistant"}, "type": "response.output_item.added"}),
        event({"delta": "a", "type": "response.output_text.delta"}, "response.output_text.delta"),
        event({"text": {"x": "a"}, "type": "response.reasoning_summary_text.done"}),
        event(
            {
                "response": {
                    "status": "incomplete",
                    "usage": {
                        "input_tokens": 7,
                        "input_tokens_details": {"cached_tokens": 0},
                        "output_tokens": 6,
                    },
                },
                "type": "response.completed",
            }
        ),
    ]
)
STREAMS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", STREAMS)
def test_results_do_not_depend_on_the_cuts(name, line_end):
    stream = STREAMS[name].replace(b"\n", line_end)
    expected = oracle.observe(stream)
    assert report(observe(stream)) == expected
    assert report(observe(*(stream[i : i + 1] for i in range(len(stream))))) == expected
    for cut in range(len(stream)):
        assert report(observe(stream[:cut], stream[cut:])) == expected


def test_a_chat_stream_is_read():
    stream = observe(CHAT)
    assert (stream.events, stream.content_events, stream.finishes) == (6, 4, 1)
    assert stream.seen == {"content", "usage_only", "end"}
    assert stream.usage == {"prompt_tokens": 7, "completion_tokens": 12, "cached_tokens": 4}
    assert stream.head == (len(event(ROLE)), {"content"})
    start, end = stream.usage_span
    assert CHAT[end:] == DONE
    assert json.loads(CHAT[start:end].removeprefix(b"data: "))["choices"] == []


def test_text_that_looks_like_an_error_is_text():
    stream = observe(event(chunk('"error": {"code": 503}, "usage": {"prompt_tokens": 1}')))
    assert stream.seen == {"content"}
    assert stream.usage["prompt_tokens"] == -1


@pytest.mark.parametrize(
    "data, code, text, refused",
    [
        (
            {"error": {"message": "m", "type": "Service Unavailable", "code": 503}},
            503,
            b"Service Unavailable",
            True,
        ),
        ({"error": {"code": 500, "type": "InternalServerError"}}, 500, b"InternalServerError", 0),
        ({"error": {"code": "429"}}, 429, b"", True),
        ({"error": {"type": "x", "code": "upstream_error"}}, 0, b"upstream_error", False),
        ({"error": "Unauthorized"}, 0, b"", False),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
            0,
            b"overloaded_error",
            True,
        ),
        ({"type": "error", "code": "503", "message": "m"}, 503, b"", True),
        ({"object": "error", "message": "m", "code": 400}, 400, b"", False),
        ({"type": "response.failed", "response": {"error": {"code": "x"}}}, 0, b"x", False),
    ],
)
def test_error_events_of_every_dialect_are_seen(data, code, text, refused):
    for spaced in (False, True):
        body = event(data, spaced=spaced)
        stream = observe(*(body[i : i + 3] for i in range(0, len(body), 3)))
        assert "error" in stream.seen
        assert stream.error == (code, text, bool(refused))
        assert stream.content_events == 0
        plain = PlainAnswer()
        plain.feed(json.dumps(data).encode())
        assert plain.is_error and plain.error == (code, text, bool(refused))


@pytest.mark.parametrize(
    "data",
    [
        {"error": None, "choices": []},
        {"error": {"code": 1}, "choices": [{"delta": {"content": "a"}}]},
        {"message": {"error": None}},
        {"x": {"error": {"code": 500}}},
    ],
)
def test_what_is_no_error_is_none(data):
    assert "error" not in observe(event(data)).seen


def test_an_error_named_only_by_its_event_line_is_an_error():
    stream = observe(event({"code": 503, "message": "m"}, "error"))
    assert stream.seen == {"error"}
    assert stream.error == (503, b"", True)


@pytest.mark.parametrize(
    "document, content",
    [
        (ROLE, True),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, True),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}, True),
        ({"choices": [{"text": "a"}]}, True),
        ({"text": "a", "meta_info": {"completion_tokens": 3}}, True),
        ({"text": "a", "type": "response.output_text.done"}, False),
        ({"choices": [{"delta": {}, "finish_reason": "stop"}]}, True),
        ({"choices": [{"delta": {}, "finish_reason": None}]}, False),
        ({"choices": [{"delta": {"content": None}}]}, False),
        ({"choices": []}, False),
        ({"id": "x"}, False),
    ],
)
def test_content_is_told_from_the_rest(document, content):
    assert observe(event(document)).content_events == content


def test_each_choice_finishes_once():
    pieces = [event({"choices": [{"index": i, "finish_reason": "stop"}]}) for i in (0, 1)]
    assert observe(*pieces).finishes == 2


def test_abort_is_seen():
    assert observe(event(chunk("", "abort"))).aborted
    assert not observe(event(chunk("abort", "stop"))).aborted


def test_continuous_usage_takes_the_last_figures():
    pieces = [event(chunk("a", usage=USAGE | {"completion_tokens": n})) for n in range(5)]
    stream = observe(*pieces)
    assert stream.usage == {"prompt_tokens": 7, "completion_tokens": 4, "cached_tokens": -1}
    assert stream.usage_span == (0, 0)


def test_a_half_event_is_known():
    body = event(ROLE)
    stream = EventStream()
    assert not stream.in_event
    for byte in body[:-1]:
        stream.feed(bytes([byte]))
        assert stream.in_event
    stream.feed(body[-1:])
    assert not stream.in_event


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_an_empty_line_closes_a_half_event(line_end):
    stream = observe(event(ROLE).replace(b"\n", line_end), b'data: {"choices":[{"del')
    assert stream.in_event
    stream.feed(b"\n\n" + event({"error": {"code": 502}}))
    assert "error" in stream.seen and not stream.in_event


def test_step_stops_at_each_event():
    stream = EventStream()
    rest, ends = CHAT, []
    while rest:
        used = stream.step(rest)
        rest = rest[used:]
        if stream.last[1] == stream.position:
            ends.append(stream.position)
    assert ends == [end for _, end, _, _ in oracle.events(CHAT)]


def test_data_over_several_lines_is_one_document():
    stream = observe(b'data: {"choices":[],\ndata: "usage":{"prompt_tokens":3\ndata:}}\n\n')
    assert stream.usage["prompt_tokens"] == 3
    assert stream.seen == {"usage_only"}


@pytest.mark.parametrize("key", ["usage", "us\\u0061ge"])
def test_keys_with_escapes_count(key):
    body = b'data: {"choices":[],"%b":{"prompt_tokens":3}}\n\n' % key.encode()
    assert observe(*(body[i : i + 1] for i in range(len(body)))).usage["prompt_tokens"] == 3


def test_an_event_of_two_megabytes_is_read_to_its_end():
    big = event(chunk("x" * 2_000_000 + '"\\', usage=USAGE))
    pieces = [big[i : i + 65_536] for i in range(0, len(big), 65_536)]
    stream = observe(event(ROLE), *pieces, DONE)
    assert (stream.events, stream.usage["completion_tokens"]) == (3, 12)


@pytest.mark.parametrize("junk", [b"garbage\n\n", b"data: {{{\n\n", b"data: \xff\xfe\n\n", b"\n"])
def test_junk_does_not_hide_what_follows(junk):
    stream = observe(event(ROLE), junk, event(chunk("", "stop")), DONE)
    assert stream.finishes == 1
    assert "end" in stream.seen


@given(
    st.lists(
        st.sampled_from(
            [
                event(ROLE),
                event(chunk("a"), spaced=True),
                event(chunk('"\\\n{', "stop"), line_end="\r\n"),
                event({"choices": [], "usage": USAGE}),
                event({"error": {"code": 503}}, line_end="\r"),
                event({"type": "ping"}, "ping"),
                b": comment\n\n",
                b"event: nothing\n\n",
                b"\n",
                DONE,
                b"data: [DONE]\r\n\r\n",
            ]
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 2000), max_size=12),
)
def test_any_sequence_of_events_is_read_as_by_the_oracle(events, cuts):
    stream = b"".join(events)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert report(observe(*pieces)) == oracle.observe(stream)


PLAIN = {
    "chat": (
        {"choices": [{"message": {"content": "a"}, "finish_reason": "length"}], "usage": USAGE},
        (1, False, [7, 12, -1]),
    ),
    "abort": (
        {"choices": [{"finish_reason": "abort"}, {"finish_reason": "stop"}], "usage": USAGE},
        (2, True, [7, 12, -1]),
    ),
    "messages": (
        {
            "type": "message",
            "content": [{"text": "usage"}],
            "stop_reason": "max_tokens",
            "usage": {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 6},
        },
        (1, False, [7, 6, 3]),
    ),
    "responses": (
        {"object": "response", "status": "incomplete", "usage": {"output_tokens": 6}},
        (1, False, [-1, 6, -1]),
    ),
    "embedding": (
        {"data": [{"embedding": [0.1] * 50}], "usage": {"prompt_tokens": 4}},
        (0, False, [4, -1, -1]),
    ),
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_plain_answers_are_read_in_any_pieces(name, size):
    document, (finishes, aborted, usage) = PLAIN[name]
    body = json.dumps(document).encode()
    plain = PlainAnswer()
    for start in range(0, len(body), size):
        plain.feed(body[start : start + size])
    assert (plain.finishes, plain.aborted) == (finishes, aborted)
    assert list(plain.usage.values()) == usage
    assert not plain.is_error


FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = sorted(
    path.name
    for path in FIXTURES.glob("vllm-*.http")
    if b"text/event-stream" in path.read_bytes()[:400]
)
PLAIN_CAPTURES = {
    "chat": (1, False, 0, [7, 8, -1]),
    "messages": (1, False, 0, [7, 6, -1]),
    "responses": (1, False, 0, [7, 6, 0]),
    "sigterm-plain": (1, True, 0, [7, 102, -1]),
    "engine-killed-plain": (0, False, 500, [-1, -1, -1]),
    "overload-503-nonstream": (0, False, 503, [-1, -1, -1]),
}


def captured_body(name: str) -> bytes:
    return (FIXTURES / name).read_bytes().partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("name", CAPTURES)
def test_captured_streams_are_read_at_any_cut(name):
    body = captured_body(name)
    expected = oracle.observe(body)
    assert expected["events"] > 1
    assert report(observe(*(body[i : i + 1] for i in range(len(body))))) == expected
    step = max(1, len(body) // 2000)
    for cut in range(0, len(body), step):
        assert report(observe(body[:cut], body[cut:])) == expected


@pytest.mark.parametrize("name", PLAIN_CAPTURES)
def test_captured_plain_answers_are_read(name):
    plain = PlainAnswer()
    plain.feed(captured_body(f"vllm-0.32.0-{name}.http"))
    seen = (plain.finishes, plain.aborted, plain.error[0], list(plain.usage.values()))
    assert seen == PLAIN_CAPTURES[name]


def test_a_killed_engine_ends_its_stream_with_an_error_event():
    stream = observe(captured_body("vllm-0.32.0-engine-killed-stream.http"))
    assert stream.seen == {"content", "error", "end"}
    assert stream.error == (500, b"InternalServerError", False)
    assert stream.finishes == 0


def test_a_full_engine_refuses_before_any_content():
    stream = observe(captured_body("vllm-0.32.0-overload-stream-200-error-event.http"))
    assert stream.head[1] == {"error"}
    assert stream.error == (503, b"Service Unavailable", True)


def test_an_engine_that_shuts_down_says_so():
    plain = PlainAnswer()
    plain.feed(captured_body("vllm-0.32.0-draining-500-new-request.http"))
    assert plain.going_away and plain.error == (500, b"InternalServerError", False)
    assert not PlainAnswer().going_away
    stream = observe(event({"error": {"message": "cannot schedule new futures after shutdown"}}))
    assert stream.going_away
    assert not observe(event({"error": {"message": "something else"}})).going_away
