"""What passes through, on real sockets."""

import json
import socket
import struct
import time

import pytest

from tests.proxy.conftest import Replica, eventually, read_all, wait_still

OK, UPSTREAM_ERROR, CLIENT_CLOSED = 0, 2, 5
BODY = b'{"model":"m", "messages":[],  "seed":123456789012345678901234567890}'
EVENTS = [b'data: {"choices":[{"delta":{"content":"%d"}}]}\n\n' % n for n in range(3)]
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
ANSWER = b'{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}'


def post(body=BODY, path=b"/v1/chat/completions", lines=b""):
    head = b"POST %s HTTP/1.1\r\nHost: g\r\n%sContent-Length: %d\r\n\r\n"
    return head % (path, lines, len(body)) + body


def stream(body=BODY):
    return body[:-1] + b', "stream": true}'


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(connection, request):
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nX-One: a\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER
    )
    return True


def test_a_request_and_its_answer_pass_byte_exact(start):
    gateway, replica = start(answer)
    seen = gateway.ask(
        post(lines=b"X-A: 1\r\nConnection: close, X-Gone\r\nX-Gone: 1\r\nX-A:  2\r\n")
    )
    head, _, body = replica.requests[0].partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert body == BODY
    assert lines[0] == b"post /v1/chat/completions http/1.1"
    assert [line for line in lines if line.startswith(b"x-a")] == [b"x-a: 1", b"x-a:  2"]
    assert not [line for line in lines if line.startswith((b"x-gone", b"connection"))]
    assert b"\r\nx-forwarded-for: 127.0.0.1\r\n" in head
    assert seen.startswith(b"HTTP/1.1 200 OK\r\nX-One: a\r\n")
    assert seen.endswith(b"\r\n\r\n" + ANSWER)
    assert gateway.outcomes() == {(OK, 200): 1}
    assert gateway.segment.model(1)["completion_tokens"] == 3


def test_each_event_is_passed_on_before_the_next_one_is_made(start):
    asked = []

    def script(connection, request):
        connection.sendall(STREAM_HEAD)
        for event in EVENTS:
            connection.sendall(chunk(event))
            connection.recv(0)
            while len(asked) == 0:
                time.sleep(0.001)
            asked.pop()
        connection.sendall(chunk(END) + b"0\r\n\r\n")
        return True

    gateway, _ = start(script)
    with gateway.connect() as client:
        client.sendall(post(stream()))
        seen = b""
        for event in EVENTS:
            while event not in seen:
                seen += client.recv(65536)
            asked.append(1)
        seen += read_all(client)
    assert seen.partition(b"\r\n\r\n")[2] == b"".join(map(chunk, [*EVENTS, END])) + b"0\r\n\r\n"
    assert gateway.in_flight() == (0, 0, 0, 0)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("head", [b"", STREAM_HEAD + chunk(EVENTS[0])])
def test_a_client_that_leaves_aborts_the_replica_within_50_ms(start, reset, head):
    def script(connection, request):
        connection.sendall(head)
        return replica.wait_close(connection)

    replica = Replica(script)
    gateway, _ = start(replica)
    client = gateway.connect()
    client.sendall(post(stream()))
    eventually(lambda: replica.requests)
    if head:
        client.recv(65536)
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    left = time.monotonic()
    client.close()
    eventually(lambda: replica.closed_at)
    assert replica.closed_at - left < 0.05 * 4  # four times the goal: the machine may be busy
    eventually(lambda: gateway.in_flight() == (0, 0, 0, 0))
    assert gateway.outcomes() == {(CLIENT_CLOSED, 200 if head else 499): 1}


def test_a_client_is_found_gone_while_its_reading_is_paused(start):
    replica = Replica(lambda connection, request: replica.wait_close(connection))
    gateway, _ = start(replica)
    client = gateway.connect()
    client.sendall(post() + b"x" * 140_000)  # more than is kept behind a request that is served
    eventually(lambda: replica.requests)
    time.sleep(0.1)
    client.shutdown(socket.SHUT_WR)
    eventually(lambda: replica.closed_at, timeout=3)
    client.close()


AMBIGUOUS = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"Content-Length: 5\r\n X: folded\r\n\r\n",
    b"X: a\x00b\r\n\r\n",
    b"X : 1\r\n\r\n",
]


@pytest.mark.parametrize("rest", AMBIGUOUS)
def test_ambiguous_framing_is_refused_and_reaches_no_replica(start, rest):
    gateway, replica = start(answer)
    seen = gateway.ask(b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\n" + rest)
    assert seen.startswith(b"HTTP/1.1 400 ")
    assert b"x-headrace-error: bad_http\r\n" in seen
    assert b"connection: close\r\n" in seen
    assert replica.requests == []


def test_pipelined_requests_are_answered_in_order(start):
    gateway, replica = start(answer)
    wire = b"".join(post(lines=b"x-request-id: %d\r\n" % n) for n in range(5))
    seen = gateway.ask(wire + b"GET /health HTTP/1.1\r\nHost: g\r\nx-request-id: 5\r\n\r\n")
    ids = [part.partition(b"\r\n")[0] for part in seen.split(b"x-request-id: ")[1:]]
    assert ids == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert replica.connections == 1


@pytest.mark.parametrize("max_retries", [0, 1])
def test_a_stale_pooled_connection_costs_no_request(start, max_retries):
    served = {}

    def script(connection, request):
        if served.setdefault(connection, 0):
            return False  # closed under the second request
        served[connection] = 1
        return answer(connection, request)

    gateway, replica = start(script, retry={"max_retries": max_retries})
    seen = gateway.ask(post() + post() + post())
    assert seen.count(b"HTTP/1.1 200 OK") == 3
    assert replica.connections == 3


def test_a_refused_connect_goes_elsewhere_with_the_same_body(start):
    gone = Replica(answer)
    gone.stop()
    gateway, _, alive = start(
        gone, answer, retry={"max_retries": 1, "backoff_s": 0, "min_per_s": 100}
    )
    for _ in range(2):
        assert gateway.ask(post()).startswith(b"HTTP/1.1 200 ")
    assert [request.partition(b"\r\n\r\n")[2] for request in alive.requests] == [BODY, BODY]


def test_a_replica_that_resets_before_a_head_is_502(start):
    gateway, _ = start(lambda connection, request: False)
    seen = gateway.ask(post())
    assert seen.startswith(b"HTTP/1.1 502 ")
    assert json.loads(seen.partition(b"\r\n\r\n")[2])["error"]["code"] == "upstream_error"
    assert gateway.outcomes() == {(UPSTREAM_ERROR, 502): 1}
    assert gateway.in_flight() == (0, 0, 0, 0)


@pytest.mark.parametrize(
    "cut", [b"", chunk(b'data: {"a'), b"f", b"ff\r", b"ff\r\ndata: ", b"3\r\nabc"]
)
def test_a_stream_that_breaks_ends_with_an_event_of_its_own(start, cut):
    def script(connection, request):
        connection.sendall(STREAM_HEAD + chunk(EVENTS[0]) + cut)
        return False

    gateway, _ = start(script)
    seen = gateway.ask(post(stream()))
    body, wire = b"", seen.partition(b"\r\n\r\n")[2]
    while wire != b"0\r\n\r\n":
        size, _, wire = wire.partition(b"\r\n")
        body, wire = body + wire[: int(size, 16)], wire[int(size, 16) + 2 :]
    last = body.rstrip(b"\n").rpartition(b"\n\n")[2]
    assert json.loads(last[len(b"data: ") :])["error"]["code"] == "upstream_error"
    assert gateway.outcomes() == {(UPSTREAM_ERROR, 200): 1}


def test_usage_that_only_the_gateway_asked_for_is_taken_out(start):
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4}}\n\n'

    def script(connection, request):
        wire = b"".join(map(chunk, [EVENTS[0][:9], EVENTS[0][9:] + usage[:20], usage[20:] + END]))
        connection.sendall(STREAM_HEAD + wire + b"0\r\n\r\n")
        return True

    gateway, replica = start(script, observability={"inject_usage": True})
    seen = gateway.ask(post(stream()))
    assert json.loads(replica.requests[0].partition(b"\r\n\r\n")[2])["stream_options"] == {
        "include_usage": True
    }
    assert b"usage" not in seen
    assert b"[DONE]" in seen
    assert gateway.segment.model(1)["completion_tokens"] == 4


def test_bodies_beyond_the_budget_wait_and_still_arrive(start):
    gateway, _ = start(answer, server={"max_buffered_bytes": 100_000})
    body = b'{"model":"m","x":"' + b"y" * 300_000 + b'"}'
    clients = [gateway.connect() for _ in range(3)]
    for client in clients:
        client.sendall(post(body))
    for client in clients:
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        client.close()
    eventually(lambda: gateway.in_flight() == (0, 0, 0, 0))


def test_pipelined_answers_wait_for_a_client_that_does_not_read(start):
    big = b'{"x":"' + b"y" * 100_000 + b'"}'

    def script(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(big) + big)
        return True

    count = 300
    gateway, replica = start(script)
    with gateway.connect() as client:
        client.sendall(post() * count)
        eventually(lambda: replica.requests)
        assert wait_still(lambda: len(replica.requests)) < count
        seen = 0
        while seen < count * len(big):
            seen += len(client.recv(1 << 20))
    eventually(lambda: gateway.in_flight() == (0, 0, 0, 0))
    assert len(replica.requests) == count
