"""A scenario on sockets: its mock fleet, and its load through a gateway, with everybody's CPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rig import gateways, net, proctree
from rig.gateways import Gateway

MODEL = "mock"
SETTLE_S = 1.5  # health checks and first scrapes pass
BUSY_RATIO = 0.7  # of a core: above it the rig may be what was measured
LATE_RATIO = 0.1


@dataclass(frozen=True)
class Fleet:
    """A running mock: its process, and the port of each replica."""

    pid: int
    ports: Sequence[int]
    control_port: int


@contextmanager
def fleet(scenario: str, replicas: int, seed: int, core: int, first_port: int) -> Iterator[Fleet]:
    """`headrace mock` with the replicas of a scenario, killed at the end."""
    first = net.consecutive_ports(replicas + 1, first_port)
    words = ["mock", "--quiet", "--scenario", scenario, "--model", MODEL, "--seed", str(seed)]
    words += ["--port", str(first), "--dcgm-port", str(first + replicas)]
    process = subprocess.Popen(
        ["taskset", "-c", str(core), sys.executable, "-m", "headrace", *words],
        env=gateways.environment(), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        net.wait_for_answer(first + replicas - 1, "/health", process)
        yield Fleet(process.pid, range(first, first + replicas), first + replicas)
    finally:
        process.kill()
        process.wait()


def served(ports: Sequence[int]) -> list[int]:
    """Requests that each replica has finished, from its own counters; 0 for one that is down."""
    found = []
    for port in ports:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                lines = page.read().decode().splitlines()
        except OSError:
            lines = []
        values = [x.rpartition(" ")[2] for x in lines if x.startswith("vllm:request_success_total")]
        found.append(round(sum(map(float, values))))
    return found


@dataclass(frozen=True)
class Cores:
    """Where the gateway runs, and where everything else does."""

    gateway: int
    load: int


def run(
    gateway: Gateway,
    policy: str,
    scenario: str,
    replicas: int,
    *,
    seed: int,
    cores: Cores,
    options: Sequence[str] = (),
    first_port: int = 21000,
) -> dict[str, Any]:
    """One run through one gateway, fleet and gateway fresh.

    Args:
        scenario: name or file; `replicas` is how many it has.
        options: more of `headrace bench`.

    Returns:
        its JSON, and under `rig` and `gateway` the CPU of the mock and of the gateway.
    """
    with (
        fleet(scenario, replicas, seed, cores.load, first_port) as mock,
        gateways.running(gateway, mock.ports, core=cores.gateway, policy=policy) as (port, process),
    ):
        time.sleep(SETTLE_S)
        before, mock_before, shares = proctree.cpu(process.pid), proctree.cpu(mock.pid), mock.ports
        at_first = served(shares)
        document = bench(port, scenario, seed, mock.control_port, cores.load, options)
        spent = proctree.cpu(process.pid) - before
        mock_spent = proctree.cpu(mock.pid) - mock_before
        requests = [b - a for a, b in zip(at_first, served(shares), strict=True)]
        memory_bytes = proctree.memory_bytes(process.pid)
    document["served"] = requests
    document["rig"]["mock_cpu_ratio"] = mock_spent.total_s / document["duration_s"]
    document["gateway"] = {
        "cpu_s": spent.total_s,
        "cpu_ratio": spent.total_s / document["duration_s"],
        "memory_bytes": memory_bytes,
    }
    return document


def bench(
    port: int, scenario: str, seed: int, control_port: int, core: int, options: Sequence[str]
) -> dict[str, Any]:
    """The scenario's load on a port; raises ValueError if the harness gives no figures."""
    words = ["bench", f"http://127.0.0.1:{port}", "--model", MODEL, "--json", "--seed", str(seed)]
    words += ["--scenario", scenario, "--control", f"http://127.0.0.1:{control_port}", *options]
    done = subprocess.run(
        ["taskset", "-c", str(core), sys.executable, "-m", "headrace", *words],
        stdout=subprocess.PIPE, env=gateways.environment(),
    )  # fmt: skip
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def share(document: dict[str, Any]) -> float:
    """CPU of mock and harness together, in cores: the rig's part of a run."""
    rig = document["rig"]
    return float(rig["cpu_ratio"] + rig["mock_cpu_ratio"])


def doubts(documents: Sequence[dict[str, Any]], at_once: int = 1) -> list[str]:
    """Why figures of so many runs at a time may be the rig's own; empty if nothing says so."""
    busiest = max(map(share, documents), default=0.0) * at_once
    late = max((lateness(d) for d in documents), default=0.0)
    found = []
    if busiest > BUSY_RATIO:
        found.append(f"mock and harness took {busiest:.0%} of their core: they may be the limit")
    if late > LATE_RATIO:
        found.append(f"requests were sent late, at p99 by {late:.0%} of the median TTFT")
    return found


def lateness(document: dict[str, Any]) -> float:
    """How late requests were sent (p99), as a share of the median TTFT, which counts it in."""
    return float((document["rig"]["late_p99_s"] or 0.0) / (document["ttft_s"]["p50"] or 1.0))
