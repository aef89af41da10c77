"""Builds and runs the C half of the rig: the fake replicas and the load generator."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rig import net

ROOT = Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build" / "bench"


class LoadError(Exception):
    """The load run failed, or not every answer came back complete."""


def build() -> None:
    """Compile both programs if their sources changed; exits with advice if there is no compiler."""
    try:
        subprocess.run(["make", "-s", "-C", str(ROOT / "benchmarks" / "loadgen")], check=True)
    except FileNotFoundError:
        sys.exit("the load generator needs make and a C compiler: apt-get install make gcc")
    except subprocess.CalledProcessError:
        sys.exit("the load generator did not build (messages above)")


@contextmanager
def replicas(
    count: int,
    *,
    core: int,
    step_ms: float = 20,
    events: int = 100,
    any_body: bool = False,
    spin: bool = False,
) -> Iterator[list[int]]:
    """Run one process with `count` fake replicas; yields their ports."""
    ports = net.free_ports(count)
    argv = ["taskset", "-c", str(core), str(BINARIES / "fake_replica")]
    argv += ["--ports", ",".join(map(str, ports)), "--events", str(events)]
    argv += ["--step-us", str(int(step_ms * 1000)), *(["--any-body"] if any_body else [])]
    argv += ["--spin"] if spin else []
    process = subprocess.Popen(argv)
    try:
        net.wait_for_port(ports[-1], process)
        yield ports
    finally:
        process.kill()
        process.wait()


def generate(port: int, *, core: int, **options: Any) -> dict[str, Any]:
    """Put load on a port; returns the generator's JSON (options: see `generate.c`).

    Raises LoadError unless every answer was complete and byte-exact.
    """
    with running(port, core=core, **options) as process:
        output, _ = process.communicate()
    result: dict[str, Any] = json.loads(output)
    wrong = {k: result[k] for k in ("bad_status", "bad_body", "cut", "broken", "lost") if result[k]}
    if wrong or result["completed"] == 0:
        raise LoadError(f"port {port}: {wrong or 'no answer at all'}")
    return result


@contextmanager
def running(port: int, *, core: int, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The load generator as a process under way, killed at the end if it still runs."""
    argv = ["taskset", "-c", str(core), str(BINARIES / "generate"), "--port", str(port)]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is not False:
            argv += [flag] if value is True else [flag, str(value)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def settle(seconds: float = 0.3) -> None:
    """Let connections of the last run close before CPU time is read again."""
    time.sleep(seconds)
