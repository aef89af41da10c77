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


def test_an_answer_with_one_wrong_byte_is_no_success():
    loadgen.build()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer_wrongly, args=(listener,), daemon=True)
        thread.start()
        with pytest.raises(loadgen.LoadError, match="bad_body"):
            loadgen.generate(listener.getsockname()[1], core=CORE, connections=1, requests=1)


def _answer_wrongly(listener):
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong")
        connection.recv(65536)


def test_cpu_of_a_tree_includes_its_children():
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        net.wait_until(lambda: _must_have_burnt(process.pid), process, 20)
        assert proctree.memory_bytes(process.pid) > 1_000_000
        process.communicate(b"\n")


def _must_have_burnt(pid):
    if proctree.cpu(pid).total_s < 0.2:
        raise OSError("not yet")
