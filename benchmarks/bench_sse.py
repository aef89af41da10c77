"""Cost of observing one event of a stream, from Python (64 a call).

Run: python -m pytest benchmarks/bench_sse.py --benchmark-enable
"""

import json

import pytest

from headrace.core.sse import EventStream

EVENTS_PER_CALL = 64


def named(document: dict) -> bytes:
    text = json.dumps(document, separators=(",", ":"))
    return f"event: {document['type']}\ndata: {text}\n\n".encode()


def unnamed(document: dict) -> bytes:
    return f"data: {json.dumps(document, separators=(',', ':'))}\n\n".encode()


HEAD = {"id": "chatcmpl-a343e9f0b4e082e9", "created": 1795952878, "model": "llama-3-8b-instruct"}
CHOICE = {"index": 0, "logprobs": None, "finish_reason": None, "token_ids": None}
EVENTS = {
    "chat": unnamed(
        HEAD
        | {"object": "chat.completion.chunk"}
        | {"choices": [CHOICE | {"delta": {"content": "ted"}}]}
    ),
    "completions": unnamed(
        HEAD | {"object": "text_completion", "choices": [CHOICE | {"text": " examples"}]}
    ),
    "messages": named(
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}, "index": 0}
    ),
    "responses": named(
        {
            "type": "response.output_text.delta",
            "item_id": "msg_ae1b047302fe5a82",
            "delta": "ence",
            "logprobs": [],
            "sequence_number": 4,
        }
    ),
}


@pytest.mark.parametrize("dialect", EVENTS)
def test_observe_events(benchmark, dialect):
    stream = EventStream()
    piece = EVENTS[dialect] * EVENTS_PER_CALL
    assert stream.feed(piece) == EVENTS_PER_CALL
    benchmark(stream.feed, piece)
    if benchmark.stats:
        seconds = benchmark.stats.stats.median / EVENTS_PER_CALL
        benchmark.extra_info["event_bytes"] = len(EVENTS[dialect])
        benchmark.extra_info["ns_per_event"] = round(seconds * 1e9, 1)
