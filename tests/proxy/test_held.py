"""Requests for a model on demand wait until a replica comes up."""

import json

import pytest

from tests.proxy.conftest import Replica, eventually
from tests.proxy.test_relay import ANSWER, answer, post

OK, REJECTED, CLIENT_CLOSED = 0, 6, 5
READY = b"GET /readyz HTTP/1.1\r\nHost: g\r\n\r\n"
ON_DEMAND = ({"model": "m", "min_replicas": 0},)


@pytest.fixture
def asleep(start):
    """`asleep(**autoscale)`: a gateway that knows its model and has no replica of it."""

    def run(*, server=None, admission=None, timeouts=None, **autoscale):
        sections = {"server": server, "admission": admission, "timeouts": timeouts}
        given = {name: values for name, values in sections.items() if values}
        gateway, *_ = start(autoscale={"models": ON_DEMAND, **autoscale}, **given)
        return gateway

    return run


@pytest.fixture
def replica():
    one = Replica(answer)
    yield one
    one.stop()


def sent(gateway, data):
    client = gateway.connect()
    client.sendall(data)
    return client


def answered(client):
    """Whether the replica's answer comes."""
    data = b""
    while piece := client.recv(65536):
        data += piece
        if data.endswith(ANSWER):
            return True
    return False


def is_refused(gateway, data):
    with sent(gateway, data) as client:
        return client.recv(65536).startswith(b"HTTP/1.1 503 ")


def held(gateway):
    return gateway.segment.process(0)["held"]


def test_held_requests_are_sent_when_a_replica_comes_up(asleep, replica):
    gateway = asleep()
    clients = [sent(gateway, post()) for _ in range(3)]
    eventually(lambda: held(gateway) == 3)
    assert gateway.segment.model(1)["queued"] == 3  # what the autoscaler sees
    gateway.publish([replica])
    for client in clients:
        with client:
            assert answered(client)
    assert (gateway.in_flight(), held(gateway)) == ((0, 0, 0, 0), 0)
    assert gateway.outcomes() == {(OK, 200): 3}
    assert gateway.segment.model(1)["queue_wait"]["sum"] > 0


def test_a_known_replica_that_takes_no_requests_yet_is_waited_for_too(asleep, replica):
    gateway = asleep()
    gateway.publish([replica])
    gateway.segment.write_row(0, eligible=False, generation=1, max_concurrency=256)
    with sent(gateway, post()) as client:
        eventually(lambda: held(gateway) == 1)
        gateway.segment.write_row(0, eligible=True, generation=1, max_concurrency=256)
        assert answered(client)


def test_a_client_that_leaves_is_not_held(asleep):
    gateway = asleep()
    client = sent(gateway, post())
    eventually(lambda: held(gateway) == 1)
    client.close()
    eventually(lambda: gateway.in_flight() == (0, 0, 0, 0))
    assert held(gateway) == 0
    assert gateway.outcomes() == {(CLIENT_CLOSED, 499): 1}


@pytest.mark.parametrize(
    "limits", [{"hold_timeout_s": 0.1}, {"timeouts": {"request_s": 0.1}}], ids=["hold", "request"]
)
def test_a_request_that_waited_too_long_gets_503_and_when_to_come_back(asleep, limits):
    gateway = asleep(**limits)
    with sent(gateway, post()) as client:
        head, _, body = client.recv(65536).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: " in head and b"\r\nx-headrace-error: no_replica" in head
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("server_error", "no_replica")
    assert (gateway.in_flight(), held(gateway)) == ((0, 0, 0, 0), 0)
    assert gateway.outcomes() == {(REJECTED, 503): 1}


def test_no_more_are_held_than_the_limit(asleep):
    gateway = asleep(hold_size=2)
    clients = [sent(gateway, post()) for _ in range(2)]
    eventually(lambda: held(gateway) == 2)
    assert is_refused(gateway, post())
    clients.pop().close()
    eventually(lambda: held(gateway) == 1)
    clients.append(sent(gateway, post()))
    eventually(lambda: held(gateway) == 2)
    for client in clients:
        client.close()


def test_held_bodies_leave_half_of_the_room_to_others(asleep):
    gateway = asleep(server={"max_buffered_bytes": 3000})
    with sent(gateway, post(post_body(1000))):
        eventually(lambda: held(gateway) == 1)
        assert is_refused(gateway, post(post_body(1000)))
    eventually(lambda: held(gateway) == 0)
    with sent(gateway, post(post_body(1000))):
        eventually(lambda: held(gateway) == 1)


def post_body(size):
    body = b'{"model":"m","prompt":""}'
    return body.replace(b'""', b'"%s"' % (b"x" * (size - len(body))))


def test_held_requests_take_no_place_of_those_that_wait_for_room(asleep):
    gateway = asleep(admission={"queue_size": 1})
    with sent(gateway, post()):
        eventually(lambda: held(gateway) == 1)
        assert gateway.plane.plane.may_wait()


def test_held_requests_go_by_priority(asleep, replica):
    gateway = asleep()
    clients = []
    for count, priority in enumerate((3, 2, 0), 1):
        clients.append(sent(gateway, post(lines=b"x-headrace-priority: %d\r\n" % priority)))
        eventually(lambda n=count: held(gateway) == n)
    gateway.publish([replica], max_concurrency=1)  # one after the other
    for client in clients:
        with client:
            assert answered(client)
    order = [int(r.split(b"x-headrace-priority: ")[1][:1]) for r in replica.requests]
    assert order == [0, 2, 3]


@pytest.mark.parametrize("autoscale", [{"models": ()}, {"models": ON_DEMAND, "hold_size": 0}])
def test_where_nothing_is_held_the_answer_comes_at_once(start, autoscale):
    gateway, *_ = start(autoscale=autoscale)
    assert is_refused(gateway, post())
    assert is_refused(gateway, READY)


def test_a_gateway_that_holds_requests_is_ready_for_them(asleep):
    with sent(asleep(), READY) as client:
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
