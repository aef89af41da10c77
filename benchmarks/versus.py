"""headrace beside other gateways on one mock fleet: what users wait, and what it costs.

Starts `headrace mock`, puts each installed gateway with its best policy in front of it in turn, and
sends the same requests through each with `headrace bench`. Gateway on one core, fleet and load on
another. Medians over the rounds.

    python benchmarks/versus.py --scenario prefix
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rig import gateways, limits, net, proctree
from rig.gateways import Gateway

MODEL = "mock"


@dataclass(frozen=True)
class Scenario:
    """A fleet, a load, and what is done to a replica before it."""

    about: str
    replicas: int
    preset: str
    bench: str  # options of `headrace bench`
    fault: dict[str, Any] = field(default_factory=dict)


SCENARIOS = {
    "prefix": Scenario(
        "8 replicas, 20 shared system prompts of 4 000 tokens, Zipf",
        8,
        "llama3-8b-h100",
        "--dataset shared-prefix --input-tokens 500 --output-tokens 100 --rate 40",
    ),
    "slow": Scenario(
        "4 replicas, one at half speed",
        4,
        "llama3-8b-h100",
        "--input-tokens 1000 --output-tokens 150 --rate 40",
        {"action": "slow", "factor": 2, "replica": 0},
    ),
    "chats": Scenario(
        "8 replicas, growing conversations of 100 users",
        8,
        "llama3-8b-h100",
        "--dataset multi-turn --users 100 --input-tokens 400 --output-tokens 100 --rate 40",
    ),
}


@contextmanager
def fleet(scenario: Scenario, core: int) -> Iterator[list[int]]:
    """The mock replicas, with the fault; their ports."""
    first = consecutive_ports(scenario.replicas)
    argv = ["taskset", "-c", str(core), sys.executable, "-m", "headrace", "mock", "--quiet"]
    argv += ["--replicas", str(scenario.replicas), "--port", str(first), "--model", MODEL]
    argv += ["--preset", scenario.preset, "--noise", "0.05"]
    process = subprocess.Popen(argv, env=gateways.environment(), stderr=subprocess.DEVNULL)
    ports = list(range(first, first + scenario.replicas))
    try:
        net.wait_for_answer(ports[-1], "/health", process)
        if scenario.fault:
            control(ports[0], scenario.fault)
        yield ports
    finally:
        process.kill()
        process.wait()


def consecutive_ports(count: int) -> int:
    """The first of `count` ports that nobody listened on a moment ago."""
    for first in range(21000, 32000, 64):
        try:
            net.must_be_free(range(first, first + count))
        except OSError:
            continue
        return first
    raise SystemExit("no row of free ports")


def control(port: int, order: dict[str, Any]) -> None:
    """Tell the mock fleet to misbehave."""
    url, body = f"http://127.0.0.1:{port}/_control", json.dumps(order).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=5).close()


def served(ports: Sequence[int]) -> list[int]:
    """Requests that each replica has finished, from its own counters."""
    found = []
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        values = [x.rpartition(" ")[2] for x in lines if x.startswith("vllm:request_success_total")]
        found.append(round(sum(map(float, values))))
    return found


def measure(
    gateway: Gateway, scenario: Scenario, seed: int, args: argparse.Namespace
) -> dict[str, Any]:
    """One run through one gateway, fleet and gateway fresh."""
    with (
        fleet(scenario, args.load_core) as ports,
        gateways.running(gateway, ports, core=args.gateway_core, policy=gateway.best_policy) as (
            port,
            process,
        ),
    ):
        time.sleep(1)  # let health checks and first scrapes pass
        served_before, cpu_before = served(ports), proctree.cpu(process.pid)
        argv = ["taskset", "-c", str(args.load_core), sys.executable, "-m", "headrace", "bench"]
        argv += [f"http://127.0.0.1:{port}", "--model", MODEL, "--json", "--seed", str(seed)]
        argv += ["--duration", str(args.seconds), *scenario.bench.split()]
        done = subprocess.run(argv, stdout=subprocess.PIPE, env=gateways.environment())
        result: dict[str, Any] = json.loads(done.stdout)
        spent = proctree.cpu(process.pid) - cpu_before
        shares = [b - a for a, b in zip(served_before, served(ports), strict=True)]
        requests = result["requests"]
        events = result["output_tokens_per_s"] * result["duration_s"]
        return {
            "ttft_p50": result["ttft_s"]["p50"],
            "ttft_p99": result["ttft_s"]["p99"],
            "tpot_p50": result["tpot_s"]["p50"],
            "tpot_p99": result["tpot_s"]["p99"],
            "e2e_p50": result["e2e_s"]["p50"],
            "e2e_p99": result["e2e_s"]["p99"],
            "hits": result["prefix_hit_ratio"],
            "imbalance": max(shares) * len(shares) / max(1, sum(shares)),
            "lost": requests["failed"] + requests["rejected"],
            "cpu_us_request": spent.total_s / max(1, requests["ok"]) * 1e6,
            "cpu_us_event": spent.total_s / max(1.0, events) * 1e6,
            "memory_mb": proctree.memory_bytes(process.pid) / 1e6,
            "rig_cpu": result["rig"]["cpu_ratio"],
        }


COLUMNS = {
    "ttft_p50": ("TTFT p50 ms", 1000, 0),
    "ttft_p99": ("p99", 1000, 0),
    "tpot_p50": ("TPOT p50 ms", 1000, 1),
    "tpot_p99": ("p99", 1000, 1),
    "e2e_p50": ("E2E p50 s", 1, 2),
    "e2e_p99": ("p99", 1, 2),
    "hits": ("hits %", 100, 0),
    "imbalance": ("max/mean", 1, 2),
    "lost": ("lost", 1, 0),
    "cpu_us_request": ("CPU µs/request", 1, 0),
    "cpu_us_event": ("/event", 1, 1),
    "memory_mb": ("MB", 1, 0),
}


def table(results: dict[str, list[dict[str, Any]]], policies: dict[str, str]) -> Table:
    """Medians of the rounds, a row each gateway; – for what was not told."""
    shown = Table("gateway", "policy")
    for heading, _, _ in COLUMNS.values():
        shown.add_column(heading, justify="right")
    for name, rounds in results.items():
        cells = []
        for key, (_, factor, digits) in COLUMNS.items():
            known = [r[key] for r in rounds if r[key] is not None]
            cells.append(f"{median(known) * factor:.{digits}f}" if known else "–")
        shown.add_row(name, policies[name], *cells)
    return shown


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", choices=SCENARIOS, default="prefix")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--gateway-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--json", action="store_true", help="all rounds on stdout, no table")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    limits.raise_open_files()
    scenario = SCENARIOS[args.scenario]
    chosen = gateways.choose(args.only, args.peer, byte_exact=False)
    results: dict[str, list[dict[str, Any]]] = {}
    for seed in range(args.rounds):
        for gateway in chosen:
            print(f"round {seed + 1} of {args.rounds}: {gateway.name} …", file=sys.stderr)
            try:
                found = measure(gateway, scenario, seed, args)
            except (net.NotReady, OSError, ValueError) as error:
                print(f"{gateway.name} failed: {error}", file=sys.stderr)
                continue
            results.setdefault(gateway.name, []).append(found)
    if args.json:
        print(json.dumps({"scenario": args.scenario, "results": results}))
    else:
        console = Console(width=160)
        console.print(f"{scenario.about}; {args.rounds} rounds of {args.seconds:g} s")
        console.print(table(results, {g.name: g.best_policy for g in chosen}))
        rig = max((r["rig_cpu"] for rounds in results.values() for r in rounds), default=0)
        console.print(f"the load harness used at most {rig:.0%} of a core")
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
