"""TLS on both sides of the gateway, with certificates made for the test."""

import contextlib
import json
import socket
import ssl
import struct
import threading
import time

import pytest
import trustme

from tests.proxy.conftest import Replica, eventually, wait_still
from tests.proxy.test_relay import (
    ANSWER,
    BODY,
    END,
    EVENTS,
    STREAM_HEAD,
    answer,
    chunk,
    post,
    stream,
)

BULK = 24_000_000


class Authority:
    """A CA with its files; `server(name)` and `client()` are contexts of its certificates."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = trustme.CA()
        self.file = folder / f"ca-{id(self)}.pem"
        self.ca.cert_pem.write_to_path(self.file)

    def write(self, name, stem):
        """Certificate and key files for a name: the settings of the side that has them."""
        pair = self.ca.issue_cert(name)
        cert, key = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in pair.cert_chain_pems))
        pair.private_key_pem.write_to_path(key)
        return str(cert), str(key)

    def server(self, name="localhost"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(name).configure_cert(context)
        return context

    def connect(self, gateway):
        """A client's connection that trusts this CA alone."""
        context = ssl.create_default_context(cafile=self.file)
        client = context.wrap_socket(gateway.connect(), server_hostname="localhost")
        client.settimeout(5)
        return client


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture(params=["client side", "replica side"])
def side(request, start, authority):
    """`side(script)`: gateway, replica and a connect function, with TLS on one side."""

    def run(script, **settings):
        if request.param == "client side":
            cert, key = authority.write("localhost", "server")
            settings["server"] = {"tls_cert": cert, "tls_key": key}
            gateway, replica = start(script, **settings)
            return gateway, replica, lambda: authority.connect(gateway)
        settings["server"] = {"upstream_tls": {"ca": str(authority.file)}}
        gateway, replica = start(Replica(script, authority.server()), **settings)
        return gateway, replica, gateway.connect

    return run


def test_connections_are_kept_and_answers_pass_byte_exact(side):
    _, replica, connect = side(answer)
    with connect() as client:
        for _ in range(3):
            client.sendall(post())
            seen = read_to(client, ANSWER)
            assert seen.startswith(b"HTTP/1.1 200 OK\r\nX-One: a\r\n")
            assert seen.endswith(b"\r\n\r\n" + ANSWER)
    assert replica.connections == 1
    assert [r.partition(b"\r\n\r\n")[2] for r in replica.requests] == [BODY] * 3
    scheme = b"http" if replica.tls else b"https"
    assert b"\r\nx-forwarded-proto: " + scheme + b"\r\n" in replica.requests[0]


def test_each_event_is_passed_on_before_the_next_one_is_made(side):
    seen_by_client = threading.Semaphore(0)

    def script(connection, request):
        connection.sendall(STREAM_HEAD)
        for event in EVENTS:
            connection.sendall(chunk(event))
            assert seen_by_client.acquire(timeout=5)
        connection.sendall(chunk(END) + b"0\r\n\r\n")
        return True

    gateway, _, connect = side(script)
    with connect() as client:
        client.sendall(post(stream()))
        seen = b""
        for event in EVENTS:
            while event not in seen:
                seen += client.recv(65536)
            seen_by_client.release()
        seen += read_to(client, b"\r\n0\r\n\r\n")
    assert seen.partition(b"\r\n\r\n")[2] == b"".join(map(chunk, [*EVENTS, END])) + b"0\r\n\r\n"
    eventually(lambda: gateway.in_flight() == (0, 0, 0, 0))


def read_to(client, ending):
    """Bytes up to those."""
    seen = b""
    while not seen.endswith(ending):
        piece = client.recv(65536)
        assert piece, seen
        seen += piece
    return seen


def ask(gateway):
    """The answer to a request on a connection of its own."""
    return gateway.ask(post(lines=b"Connection: close\r\n"), 10)


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_leaves_aborts_the_replica(side, reset):
    def script(connection, request):
        connection.sendall(STREAM_HEAD + chunk(EVENTS[0]))
        return replica.wait_close(connection)

    gateway, replica, connect = side(script)
    client = connect()
    client.sendall(post(stream()))
    assert client.recv(65536)
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    left = time.monotonic()
    client.close()
    eventually(lambda: replica.closed_at)
    assert replica.closed_at - left < 0.05 * 4  # four times the goal: the machine may be busy
    eventually(lambda: gateway.in_flight() == (0, 0, 0, 0))


def test_a_client_that_does_not_read_holds_its_replica_up(side):
    sent = []

    def script(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BULK)
        for piece in range(BULK // 8000):
            connection.sendall(b"%7d\n" % piece * 1000)
            sent.append(piece)
        return True

    gateway, _, connect = side(script)
    with connect() as client:
        client.sendall(post())
        eventually(lambda: sent)
        assert wait_still(lambda: len(sent)) < BULK // 8000, "the replica goes on without a reader"
        seen = read_exactly(client)
    body = seen.partition(b"\r\n\r\n")[2]
    assert body == b"".join(b"%7d\n" % piece * 1000 for piece in range(BULK // 8000))
    eventually(lambda: gateway.in_flight() == (0, 0, 0, 0))


def read_exactly(client):
    """The whole answer of BULK bytes."""
    parts, size, head = [], 0, None
    while head is None or size < head + 4 + BULK:
        parts.append(client.recv(1 << 20))
        size += len(parts[-1])
        assert parts[-1], "the answer was cut"
        if head is None and (found := b"".join(parts).find(b"\r\n\r\n")) >= 0:
            head = found
    return b"".join(parts)


def test_a_large_body_arrives(side):
    _, replica, connect = side(answer)
    body = b'{"model":"m","x":"' + b"y" * 3_000_000 + b'"}'
    with connect() as client:
        client.sendall(post(body))
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert replica.requests[0].partition(b"\r\n\r\n")[2] == body


# ---- the client's side


def test_plain_bytes_on_the_tls_port_hurt_nobody(start, authority):
    cert, key = authority.write("localhost", "server")
    gateway, _ = start(answer, server={"tls_cert": cert, "tls_key": key})
    assert b"HTTP/1.1" not in gateway.ask(post())
    with authority.connect(gateway) as client:
        client.sendall(post())
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_new_certificate_counts_for_new_connections_and_a_bad_one_for_none(start, authority):
    cert, key = authority.write("localhost", "server")
    gateway, _ = start(answer, server={"tls_cert": cert, "tls_key": key})
    kept = authority.connect(gateway)
    number = kept.getpeercert()["serialNumber"]

    def presented():
        with authority.connect(gateway) as client:
            return client.getpeercert()["serialNumber"]

    authority.write("localhost", "server")
    gateway.publish_again()
    eventually(lambda: presented() != number)
    renewed = presented()
    with open(key, "w") as file:
        file.write("no key")
    gateway.publish_again()
    time.sleep(0.2)
    assert presented() == renewed
    with kept:
        kept.sendall(post())
        assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")


# ---- the replicas' side


def code_of(seen):
    return seen[9:12], json.loads(seen.partition(b"\r\n\r\n")[2])["error"]["code"]


@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_a_certificate_that_proves_nothing_gets_no_request(start, authority, tmp_path, wrong):
    issuer = authority if wrong == "name" else Authority(tmp_path)
    name = "elsewhere.test" if wrong == "name" else "localhost"
    replica = Replica(answer, issuer.server(name))
    gateway, _ = start(replica, server={"upstream_tls": {"ca": str(authority.file)}})
    assert code_of(ask(gateway)) == (b"502", "upstream_error")
    assert replica.requests == []
    gateway, _ = start(replica, server={"upstream_tls": {"insecure": True}})
    assert ask(gateway).startswith(b"HTTP/1.1 200 ")


def test_the_replica_is_told_which_name_is_wanted(start, authority):
    names = []
    context = authority.server()
    context.sni_callback = lambda connection, name, own: names.append(name)
    gateway, _ = start(
        Replica(answer, context), server={"upstream_tls": {"ca": str(authority.file)}}
    )
    assert ask(gateway).startswith(b"HTTP/1.1 200 ")
    assert names == ["localhost"]


def test_a_replica_that_asks_for_a_certificate_gets_the_configured_one(start, authority):
    context = authority.server()
    context.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(context)
    replica = Replica(answer, context)
    ca = str(authority.file)
    gateway, _ = start(replica, server={"upstream_tls": {"ca": ca}})
    assert code_of(ask(gateway)) == (b"502", "upstream_error")
    cert, key = authority.write("gateway.test", "client")
    gateway, _ = start(replica, server={"upstream_tls": {"ca": ca, "cert": cert, "key": key}})
    assert ask(gateway).startswith(b"HTTP/1.1 200 ")


def test_connections_outlive_what_control_publishes_until_the_files_change(
    start, authority, tmp_path
):
    other = Authority(tmp_path)
    first, second = Replica(answer, authority.server()), Replica(answer, other.server())
    file = tmp_path / "ca.pem"
    file.write_bytes(authority.file.read_bytes())
    settings = {"server": {"upstream_tls": {"ca": str(file)}}, "retry": {"max_retries": 0}}
    gateway, *_ = start(first, second, **settings)

    def statuses():
        return sorted(ask(gateway)[9:12] for _ in range(2))

    assert statuses() == [b"200", b"502"]
    gateway.publish_again()
    time.sleep(0.2)
    assert statuses() == [b"200", b"502"]
    assert first.connections == 1
    file.write_bytes(authority.file.read_bytes() + other.file.read_bytes())
    gateway.publish_again()
    eventually(lambda: statuses() == [b"200", b"200"])
    file.write_text("no certificate")
    gateway.publish_again()
    time.sleep(0.2)
    assert statuses() == [b"200", b"200"]


def test_a_replica_that_does_not_answer_the_handshake_is_a_connect_time_out(start):
    def silent(connection, request):
        return True

    class Plain(Replica):
        """Accepts, and says nothing."""

        def _serve(self, connection):
            with contextlib.suppress(OSError):
                self.wait_close(connection)

    replica = Plain(silent)
    replica.url = replica.url.replace("http://127.0.0.1", "https://localhost")
    gateway, _ = start(replica, timeouts={"connect_s": 0.3})
    assert code_of(ask(gateway)) == (b"504", "upstream_timeout")
    eventually(lambda: replica.closed_at)
