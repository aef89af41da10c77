"""The real commands as subprocesses: a mock fleet and a gateway in front of it, for tests."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def free_ports(count: int) -> int:
    """The first of `count` consecutive free ports."""
    for _ in range(200):
        first = free_port()
        if first + count > 65535:
            continue
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError("no free ports")


class Command:
    """`headrace …` until `stop`; `wait_line` waits for a line on stderr."""

    def __init__(
        self, *words: str, python: tuple[str, ...] = (), only: dict[str, str] | None = None
    ) -> None:
        """`python`: another interpreter, and what runs it; `only`: its whole environment."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        env["PYTHONPATH"] = str(SRC)
        self.process = subprocess.Popen(
            [*(python or (sys.executable,)), "-m", "headrace", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=env if only is None else only,
            cwd=None if only is None else "/",
        )
        self.log = b""

    def wait_line(self, text: bytes, timeout_s: float = 20.0) -> None:
        assert self.process.stderr is not None
        deadline = time.monotonic() + timeout_s
        while text not in self.log:
            left = deadline - time.monotonic()
            assert left > 0 and self.process.poll() is None, self.log.decode()
            if select.select([self.process.stderr], [], [], min(left, 0.5))[0]:
                self.log += os.read(self.process.stderr.fileno(), 65536)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def get(url: str, body: bytes | None = None, timeout_s: float = 10.0) -> bytes:
    """The body of a GET, or of a POST with a JSON body."""
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return answer.read()


class Fleet:
    """Mock replicas and a gateway, as a context manager."""

    def __init__(self, replicas: int = 3, mock: tuple[str, ...] = (), serve: tuple[str, ...] = ()):
        self.first = free_ports(replicas + 1)
        self.port, self.admin_port = free_port(), free_port()
        self.urls = [f"http://127.0.0.1:{self.first + i}" for i in range(replicas)]
        self.mock_words = ("--replicas", str(replicas), "--port", str(self.first), *mock)
        self.serve_words = serve
        self.names_replicas = True  # on the command line; else the configuration does

    def __enter__(self) -> Fleet:
        self.mock = Command("mock", "--model", "tiny", *self.mock_words)
        self.mock.wait_line(b"headrace mock ready")
        replicas = ("--replicas", *self.urls) if self.names_replicas else ()
        self.gateway = Command(
            *("serve", *replicas, "--host", "127.0.0.1", "--port", str(self.port)),
            *("--admin-port", str(self.admin_port), "--processes", "1", *self.serve_words),
        )
        self.gateway.wait_line(b"headrace ready")
        deadline = time.monotonic() + 10
        while self.serving() < len(self.urls) and time.monotonic() < deadline:
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.gateway.stop()
        self.mock.stop()

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    def serving(self) -> int:
        """Replicas that take traffic."""
        replicas = json.loads(get(f"{self.admin}/replicas"))["replicas"]
        return sum(r["state"] in ("ready", "degraded") for r in replicas)

    def chat(
        self, text: str = "hello", tokens: int = 8, stream: bool = True, model: str = "tiny"
    ) -> bytes:
        """One request, read to its end."""
        body = {"model": model, "stream": stream, "max_tokens": tokens}
        body["messages"] = [{"role": "user", "content": text}]
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        return get(url, json.dumps(body).encode(), 30)

    def control(self, **action: object) -> None:
        """POST /_control of the mock fleet."""
        get(f"{self.urls[0]}/_control", json.dumps(action).encode())
