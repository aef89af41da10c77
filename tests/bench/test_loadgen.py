"""The C rig under benchmarks/: load that is complete is told from load that is not."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from rig import loadgen, net, proctree

CORE = 0


@pytest.fixture(scope="module")
def replica_ports():
    loadgen.build()
    with loadgen.replicas(2, core=CORE, step_ms=1, events=10) as ports:
        yield ports


def test_every_plain_answer_comes_back_complete(replica_ports):
    result = loadgen.generate(replica_ports[0], core=CORE, connections=4, requests=200)
    assert result["completed"] == result["sent"] == 200
    assert 0 < result["latency_us"]["p50"] <= result["latency_us"]["p99"]


def test_every_stream_brings_all_its_events(replica_ports):
    load = {"stream": True, "events": 10, "connections": 3, "requests": 30}
    result = loadgen.generate(replica_ports[1], core=CORE, **load)
    assert result["events"] == 300
    assert result["reads"] >= 100  # paced events do not arrive in one piece


def test_open_loop_keeps_its_rate(replica_ports):
    result = loadgen.generate(replica_ports[0], core=CORE, rate=400, seconds=1)
    assert 300 < result["completed"] < 500


REQUEST = {"stream": True, "events": 10, "connections": 1, "requests": 1, "body_bytes": 256}


@pytest.fixture(scope="module")
def good_answer(replica_ports):
    """The bytes of one streamed answer, as the fake replica sends them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with loadgen.running(port, core=CORE, **REQUEST):
            client, _ = listener.accept()
            with client, socket.create_connection(("127.0.0.1", replica_ports[0])) as replica:
                replica.sendall(client.recv(65536))
                received = b""
                while not received.endswith(b"0\r\n\r\n"):
                    received += replica.recv(65536)
    return received


def scripted(pieces):
    """Answer one request with the pieces and close; what the generator says of it."""
    loadgen.build()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, pieces), daemon=True).start()
        port = listener.getsockname()[1]
        return loadgen.generate(port, core=CORE, **REQUEST, seconds=1)


def _serve(listener, pieces):
    connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.recv(65536)
        for piece in pieces:
            connection.sendall(piece)


def test_an_answer_in_single_bytes_is_still_one_answer(good_answer):
    result = scripted([good_answer[i : i + 1] for i in range(len(good_answer))])
    assert (result["completed"], result["events"]) == (1, 10)


@pytest.mark.parametrize(
    "change, kind",
    [
        (lambda answer: answer.replace(b"number 00004", b"number 00005"), "bad_body"),
        (lambda answer: answer[:-200], "cut"),
        (lambda answer: answer.replace(b"\r\ndata", b"zz\r\ndata", 1), "broken"),
        (lambda answer: answer.replace(b"200 OK", b"503 No"), "bad_status"),
    ],
)
def test_an_answer_that_differs_is_no_success(good_answer, change, kind):
    with pytest.raises(loadgen.LoadError, match=kind):
        scripted([change(good_answer)])


def test_cpu_of_a_tree_includes_its_children():
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        net.wait_until(lambda: _must_have_burnt(process.pid), process, 40)
        assert proctree.memory_bytes(process.pid) > 1_000_000
        process.communicate(b"\n")


def _must_have_burnt(pid):
    if proctree.cpu(pid).total_s < 0.2:
        raise OSError("not yet")
