"""`retry.before_first_token`: what becomes of an answer that begins with a failure."""

import json

import pytest

from tests.proxy.conftest import eventually
from tests.proxy.test_relay import (
    ANSWER,
    BODY,
    STREAM_HEAD,
    UPSTREAM_ERROR,
    answer,
    chunk,
    post,
    stream,
)

RETRY = {"before_first_token": True, "max_retries": 3, "backoff_s": 0, "min_per_s": 100}
DEAD = {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}
BUSY = {"message": "The engine is currently busy", "type": "ServiceUnavailable", "code": 503}


def refusing(error):
    event = b"data: " + json.dumps({"error": error}).encode() + b"\n\n"

    def script(connection, request):
        connection.sendall(STREAM_HEAD + chunk(event) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return True

    return script


def dead_plain(connection, request):
    """A 500 that says so, and ends with the connection."""
    body = json.dumps({"error": DEAD}).encode()
    connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\r\n" + body)
    return False


@pytest.mark.parametrize("script, body", [(refusing(DEAD), stream()), (dead_plain, None)])
def test_two_attempts_that_died_are_a_clear_error(start, script, body):
    gateway, *replicas = start(script, script, script, retry=RETRY)
    seen = gateway.ask(post(body or BODY, lines=b"Connection: close\r\n"), 10)
    assert seen.startswith(b"HTTP/1.1 502 ")
    assert json.loads(seen.partition(b"\r\n\r\n")[2])["error"]["code"] == "upstream_error"
    assert sum(len(replica.requests) for replica in replicas) == 2
    eventually(lambda: gateway.in_flight() == (0, 0, 0, 0))
    assert gateway.outcomes() == {(UPSTREAM_ERROR, 502): 1}


def test_an_answer_that_ends_with_its_connection_is_replaced_by_the_next_one(start):
    gateway, *_ = start(dead_plain, answer, retry=RETRY)
    for _ in range(2):
        seen = gateway.ask(post(lines=b"Connection: close\r\n"), 10)
        assert seen.startswith(b"HTTP/1.1 200 ") and seen.endswith(b"\r\n\r\n" + ANSWER), seen
    assert gateway.in_flight() == (0, 0, 0, 0)


def test_a_refusal_for_load_passes_if_nobody_else_takes_it_and_is_no_failure(start):
    gateway, *_ = start(refusing(BUSY), refusing(BUSY), retry=RETRY)
    seen = gateway.ask(post(stream(), lines=b"Connection: close\r\n"), 10)
    assert seen.startswith(b"HTTP/1.1 200 ") and b"currently busy" in seen
    failures = [gateway.segment.cell(slot)["failures"] for slot in range(2)]
    assert [(own["overloaded"], own["error_event"]) for own in failures] == [(1, 0), (1, 0)]
