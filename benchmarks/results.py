"""Runs the shipped scenarios and writes docs/results.md: simulator, and network mock beside it.

    python benchmarks/results.py [--seeds 3] [--network] [--write]

`--network` repeats three scenarios in real time: `headrace mock`, the gateway and the load harness,
on this machine; every run says how busy the harness itself was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from headrace.bench.load import Run, Target
from headrace.bench.prompts import text
from headrace.bench.summary import distribution
from headrace.bench.workload import Request, Segment
from headrace.sim.command import figures, simulate
from headrace.sim.scenario import Scenario, load
from headrace.sim.traffic import Open, requests_of, source_of

OUTPUT = Path(__file__).parents[1] / "docs" / "results.md"
ALL = ("cost_aware", "cache_aware", "prefix_hash", "least_load", "power_of_two", "round_robin")
# scenario: policies, and whether the network repeats it
PLAN: dict[str, tuple[tuple[str, ...], bool]] = {
    "a10": ((*ALL, "random"), True),
    "slow-node": (ALL, True),
    "prefix-affinity": ((*ALL, "random"), True),
    "sys": (ALL, False),
    "retry-storm": (("cost_aware",), False),
    "retry-storm-unbudgeted": (("cost_aware",), False),
    "tp8-10": (ALL, False),
    "tp8-125": (("cost_aware", "cache_aware", "least_load", "round_robin"), False),
    "flash-crowd": (("cost_aware", "least_load"), False),
    "flash-crowd-forecast": (("cost_aware", "least_load"), False),
}
NETWORK_REQUESTS = {"a10": 500, "slow-node": 2200, "prefix-affinity": 600}
NETWORK_POLICIES = ("cost_aware", "least_load", "round_robin")
PORT = 18400


def span(values: list[float], scale: float = 1000) -> str:
    """A mean with its range over seeds."""
    low, high = min(values) * scale, max(values) * scale
    return f"{statistics.fmean(values) * scale:.0f} ({low:.0f}–{high:.0f})"


def simulated(scenario: Scenario, policies: tuple[str, ...], seeds: int) -> list[list[str]]:
    """Table rows of one scenario."""
    runs: dict[str, list[dict[str, Any]]] = {policy: [] for policy in policies}
    for seed in range(seeds):
        shared = source_of(scenario, seed)
        for policy in policies:
            source = shared if isinstance(shared, Open) else None
            runs[policy].append(figures(scenario, policy, simulate(scenario, policy, seed, source)))
    rows = []
    for policy, found in runs.items():
        attempts = statistics.fmean(r["attempts"] / scenario.traffic.requests for r in found)
        rows.append(
            [
                policy,
                span([r["ttft_s"]["p50"] for r in found]),
                span([r["ttft_s"]["p99"] for r in found]),
                span([r["e2e_s"]["p99"] for r in found]),
                f"{statistics.fmean(r['prefix_hit_ratio'] for r in found):.0%}",
                f"{statistics.fmean(r['lost'] for r in found):.0f}",
                f"{attempts:.2f}",
            ]
        )
    return rows


def command(*words: str) -> subprocess.Popen[bytes]:
    """A headrace command in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "headrace", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for(url: str, timeout_s: float = 20.0) -> None:
    """Until a URL answers 200."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{url} does not answer")


def worded(request: Request) -> Request:
    """The request with segments shortened so that their words make as many tokens for the mock."""
    job = request.job
    prompt = tuple(
        Segment(s.key, max(1, round(s.tokens * 4 * 200 / len(text(s.key, 200)))), s.role)
        for s in job.prompt
    )
    return Request(request.at_s, job._replace(prompt=prompt))


async def measured(scenario: Scenario, seed: int, url: str) -> Run:
    """The scenario's requests in real time against a URL."""
    requests = [
        worded(r) for r in islice(requests_of(scenario.traffic, seed), scenario.traffic.requests)
    ]
    async with Run(Target(url, model="m")).open() as run:
        await run.open_loop(requests)
    return run


def network(scenario: Scenario, policy: str, seed: int) -> list[str]:
    """One row: the same scenario through sockets."""
    count = scenario.replica_count
    urls = [f"http://127.0.0.1:{PORT + i}" for i in range(count)]
    gateway = f"http://127.0.0.1:{PORT + 50}"
    preset = scenario.replicas[0].preset
    mock = command(
        *("mock", "--replicas", str(count), "--port", str(PORT), "--model", "m"),
        *("--preset", preset, "--seed", str(seed)),
    )
    serve = command(
        *("serve", "--replicas", *urls, "--host", "127.0.0.1", "--port", str(PORT + 50)),
        *("--admin-port", str(PORT + 51), "--processes", "1", "--policy", policy),
        *("--max-concurrency", "1000000", "--probe-interval-secs", "0"),
    )
    try:
        wait_for(f"{urls[-1]}/health")
        index = 0
        for group in scenario.replicas:
            for _ in range(group.count):
                if group.slow != 1.0:
                    body = json.dumps({"replica": index, "action": "slow", "factor": group.slow})
                    urllib.request.urlopen(f"{urls[index]}/_control", body.encode()).close()
                index += 1
        wait_for(f"{gateway}/readyz")
        time.sleep(1.5)
        run = asyncio.run(measured(scenario, seed, gateway))
    finally:
        for process in (serve, mock):
            process.terminate()
        for process in (serve, mock):
            process.wait(20)
    samples = run.record.samples
    counted = [s for s in samples[len(samples) // 10 :] if s.ok]
    ttft = distribution([s.ttft_s for s in counted])
    failed = sum(not s.ok for s in samples)
    assert ttft["p50"] is not None
    assert ttft["p99"] is not None
    busy = f"{run.cpu_s / run.duration_s:.0%}"
    return [policy, f"{ttft['p50'] * 1000:.0f}", f"{ttft['p99'] * 1000:.0f}", str(failed), busy]


def beside(name: str, scenario: Scenario) -> list[list[str]]:
    """Simulator and network for the same short traffic, policy by policy."""
    traffic = msgspec.structs.replace(scenario.traffic, requests=NETWORK_REQUESTS[name])
    short = msgspec.structs.replace(scenario, traffic=traffic)
    rows = []
    for policy in NETWORK_POLICIES:
        out = figures(short, policy, simulate(short, policy, 0))["ttft_s"]
        row = network(short, policy, 0)
        p50, p99 = out["p50"] * 1000, out["p99"] * 1000
        ratio = f"{float(row[1]) / p50:.2f}, {float(row[2]) / p99:.2f}"
        rows.append([policy, f"{p50:.0f}", row[1], f"{p99:.0f}", row[2], ratio, row[3], row[4]])
        print(name, rows[-1], file=sys.stderr)
    return rows


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


SIM_HEAD = [
    "policy",
    "TTFT p50 ms",
    "TTFT p99 ms",
    "E2E p99 ms",
    "hits",
    "lost",
    "attempts ÷ requests",
]
NET_HEAD = [
    *("policy", "p50 sim", "p50 network", "p99 sim", "p99 network"),
    *("network ÷ sim p50, p99", "failed", "harness CPU"),
]


def main() -> int:
    """Run everything; print, and write the document where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    parts = []
    for name, (policies, repeated) in PLAN.items():
        if args.only and name not in args.only:
            continue
        scenario = load(name)
        began = time.monotonic()
        rows = simulated(scenario, policies, args.seeds)
        parts += [f"## {name}", scenario.about, markdown(SIM_HEAD, rows)]
        if repeated and args.network:
            parts += [
                f"The first {NETWORK_REQUESTS[name]} requests in real time, times in ms:",
                markdown(NET_HEAD, beside(name, scenario)),
            ]
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    document = "\n\n".join(parts) + "\n"
    print(document)
    if args.write:
        flags = " --network" if args.network else ""
        head = (
            "# Results of the shipped scenarios\n\n"
            f"Made by `python benchmarks/results.py --seeds {args.seeds}{flags} --write`. "
            f"Means over {args.seeds} seeds, the range in brackets. Engines are models with "
            "published coefficients, not GPUs; the router is the real one.\n\n"
        )
        OUTPUT.write_text(head + document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
