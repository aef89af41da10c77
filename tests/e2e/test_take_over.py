"""`headrace serve --take-over` under load: a new gateway takes the sockets of the running one."""

import contextlib
import json
import threading
import time

import pytest
from gateway_process import Command, Fleet, free_port, get
from load_threads import Load

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]


def stream(port, into):
    """Read one long stream to its end."""
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 400, "stream": True}
    url = f"http://127.0.0.1:{port}/v1/completions"
    into.append(get(url, json.dumps(body).encode(), 40))


@contextlib.contextmanager
def fleet(tmp_path, *serve):
    path = tmp_path / "meet.sock"
    tmp_path.chmod(0o700)
    config = tmp_path / "headrace.yaml"
    config.write_text(
        f"server: {{take_over_path: {path}, drain_settle_s: 2, drain_timeout_s: 20}}\n"
    )
    with Fleet(2, mock=("--speedup", "4"), serve=("--config", str(config), *serve)) as running:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:  # what /replicas calls ready is eligible a tick later
            with contextlib.suppress(OSError):
                get(f"http://127.0.0.1:{running.port}/readyz")
                break
            time.sleep(0.02)
        yield running


def successor(running, tmp_path, *more):
    return Command(
        *("serve", "--take-over", "--replicas", *running.urls, "--host", "127.0.0.1"),
        *("--port", str(running.port), "--admin-port", str(running.admin_port)),
        *("--config", str(tmp_path / "headrace.yaml"), *more),
    )


@pytest.mark.parametrize(("before", "after"), [("2", "1"), ("1", "2"), ("1", "0"), ("0", "1")])
def test_a_successor_takes_over_without_a_failed_connection(tmp_path, before, after):
    with fleet(tmp_path, "--processes", before) as running:
        read = []
        long = threading.Thread(target=stream, args=(running.port, read))
        with contextlib.ExitStack() as stack:
            short = stack.enter_context(Load(running.port, 3, False))
            kept = stack.enter_context(Load(running.port, 3, True))
            long.start()
            time.sleep(0.3)
            new = successor(running, tmp_path, "--processes", after)
            stack.callback(new.stop)
            new.wait_line(b"headrace ready", 60)
            counted = short.done, kept.done
            assert running.gateway.process.wait(60) == 0
            long.join(60)
            time.sleep(0.3)
            short.finish()
            kept.finish()
        assert (short.failures, kept.failures) == ([], [])
        assert read[0].endswith(b"data: [DONE]\n\n")
        assert 0 < counted[0] < short.done
        assert 0 < counted[1] < kept.done


def test_a_successor_that_fails_leaves_the_running_gateway_alone(tmp_path):
    with fleet(tmp_path) as running:
        other = Command(
            *("serve", "--take-over", "--replicas", *running.urls, "--host", "127.0.0.1"),
            *("--port", str(free_port()), "--admin-port", str(running.admin_port)),
            *("--config", str(tmp_path / "headrace.yaml")),
        )
        assert other.process.wait(60) == 1
        assert b"a listener cannot be moved" in other.process.stderr.read()
        assert running.chat().endswith(b"data: [DONE]\n\n")
        assert running.gateway.process.poll() is None
