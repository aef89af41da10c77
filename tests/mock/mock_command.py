"""Starts the real `headrace mock` for tests that need its sockets."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

READY = "headrace mock ready: "


def free_ports(count: int) -> int:
    """The first of `count` consecutive free ports, below the range of outgoing connections."""
    for first in range(20000 + os.getpid() % 10000, 32000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    s = stack.enter_context(socket.socket())
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError(f"no {count} consecutive free ports")


class Mock:
    """A running `headrace mock`: the replicas' `urls`, and `dcgm_url` for GPUs and control."""

    def __init__(self, process: subprocess.Popen[str], urls: list[str], dcgm_url: str) -> None:
        self.process = process
        self.urls = urls
        self.url = urls[0]
        self.dcgm_url = dcgm_url

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)


@contextlib.contextmanager
def running_mock(*options: str, replicas: int = 1) -> Iterator[Mock]:
    """`headrace mock` on free ports, with a GPU page on the last one; killed at the end."""
    port = free_ports(replicas + 1)
    dcgm_port = port + replicas
    words = ["mock", "--replicas", str(replicas), "--port", str(port), *options]
    words += ["--dcgm-port", str(dcgm_port)]
    command = [sys.executable, "-m", "headrace", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield Mock(process, _read_ready(process), f"http://127.0.0.1:{dcgm_port}")
    finally:
        process.kill()
        process.wait()


def _read_ready(process: subprocess.Popen[str], patience_s: float = 20.0) -> list[str]:
    assert process.stderr is not None
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if select.select([process.stderr], [], [], 0.2)[0]:
            line = process.stderr.readline()
            if line.startswith(READY):
                return line.removeprefix(READY).split()
            assert line, f"headrace mock ended with {process.wait()}"
    raise AssertionError("headrace mock did not become ready")
