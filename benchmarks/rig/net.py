"""Ports: find free ones, wait until somebody listens or answers."""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from collections.abc import Callable, Iterable


class NotReady(Exception):
    """The process died or did not come up in time."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def must_be_free(ports: Iterable[int]) -> None:
    """Raises OSError if somebody listens on one of the ports."""
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def consecutive_ports(count: int, first: int = 21000) -> int:
    """The first of `count` ports, from `first` on, that nobody listened on a moment ago."""
    for start in range(first, 32000, 64):
        try:
            must_be_free(range(start, start + count))
        except OSError:
            continue
        return start
    raise SystemExit("no row of free ports")


def wait_for_port(port: int, process: subprocess.Popen[bytes], timeout_s: float = 20) -> None:
    """Wait until the process accepts connections."""
    wait_until(lambda: socket.create_connection(("127.0.0.1", port), 1).close(), process, timeout_s)


def wait_for_answer(
    port: int, path: str, process: subprocess.Popen[bytes], timeout_s: float = 30
) -> None:
    """Wait until GET path answers 200."""

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", path)
            if connection.getresponse().status != 200:
                raise OSError(f"GET {path} is not 200 yet")
        finally:
            connection.close()

    wait_until(ask, process, timeout_s)


def wait_until(
    attempt: Callable[[], None], process: subprocess.Popen[bytes], timeout_s: float
) -> None:
    """Repeat the attempt until it raises no OSError; NotReady if the process ends first."""
    deadline = time.monotonic() + timeout_s
    while True:
        if process.poll() is not None:
            raise NotReady(f"{process.args} ended with code {process.returncode}")
        try:
            attempt()
            return
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                raise NotReady(f"{process.args}: {error}") from error
            time.sleep(0.1)
