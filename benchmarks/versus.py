"""headrace beside other gateways on one mock fleet: what users wait, and what it costs.

Starts the mock fleet of a scenario (`src/headrace/sim/scenarios/`), puts each installed gateway
with its best policy in front of it in turn, and sends the scenario's first requests through each in
real time. Gateways on one core, fleets and load on another. Medians over the rounds, and the range.

    python benchmarks/versus.py --scenario mooncake-8 --trace FILE
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rig import gateways, limits, net, scenarios
from rig.gateways import Gateway
from rig.results_page import imbalance
from rig.scenarios import Cores

from headrace.sim.scenario import ScenarioError, load, shipped

Row = dict[str, float | None]


def row(document: dict[str, Any]) -> Row:
    """The figures of one run."""
    requests, gateway = document["requests"], document["gateway"]
    events = document["output_tokens_per_s"] * document["duration_s"]
    latencies = {
        f"{key}_{quantile}": document[f"{key}_s"][quantile]
        for key in ("ttft", "tpot", "e2e")
        for quantile in ("p50", "p99")
    }
    return {
        **latencies,
        "hits": document["prefix_hit_ratio"],
        "imbalance": imbalance(document["served"]),
        "lost": requests["failed"] + requests["rejected"],
        "cpu_us_request": gateway["cpu_s"] / max(1, requests["ok"]) * 1e6,
        "cpu_us_event": gateway["cpu_s"] / max(1.0, events) * 1e6,
        "cpu_ratio": gateway["cpu_ratio"],
        "memory_mb": gateway["memory_bytes"] / 1e6,
    }


COLUMNS = {
    "ttft_p50": ("TTFT p50 ms", 1000, 0),
    "ttft_p99": ("p99", 1000, 0),
    "tpot_p50": ("TPOT p50 ms", 1000, 1),
    "tpot_p99": ("p99", 1000, 1),
    "e2e_p50": ("E2E p50 s", 1, 2),
    "e2e_p99": ("p99", 1, 2),
    "hits": ("hits %", 100, 0),
    "imbalance": ("max ÷ mean", 1, 2),
    "lost": ("lost", 1, 0),
    "cpu_us_request": ("CPU µs/request", 1, 0),
    "cpu_us_event": ("/event", 1, 1),
    "cpu_ratio": ("% of a core", 100, 0),
    "memory_mb": ("MB", 1, 0),
}


def table(results: dict[str, list[dict[str, Any]]], policies: dict[str, str]) -> Table:
    """Medians of the rounds, a row each gateway; – for what was not told."""
    shown = Table("gateway", "policy", box=box.MARKDOWN)
    for heading, _, _ in COLUMNS.values():
        shown.add_column(heading, justify="right")
    for name, documents in results.items():
        rows = [row(document) for document in documents]
        cells = [
            cell([r[key] for r in rows], factor, digits)
            for key, (_, factor, digits) in COLUMNS.items()
        ]
        shown.add_row(name, policies[name], *cells)
    return shown


def cell(values: Sequence[float | None], factor: float, digits: int) -> str:
    """The median of what is known, with its range where rounds differ."""
    known = [value * factor for value in values if value is not None]
    if not known:
        return "–"
    low, middle, high = (f"{f(known):.{digits}f}" for f in (min, median, max))
    return middle if low == high else f"{middle} ({low}–{high})"


def measure(
    args: argparse.Namespace, seed: int, first_port: int, gateway: Gateway
) -> dict[str, Any] | None:
    """One run through one gateway; None, with the reason on stderr, if it does not work."""
    options = ["--requests", str(args.requests), "--timeout", str(args.timeout)]
    if args.trace:
        options += ["--dataset", args.trace]
    try:
        return scenarios.run(
            gateway, gateway.best_policy, args.scenario, load(args.scenario).replica_count,
            seed=seed, cores=Cores(args.gateway_core, args.load_core),
            options=options, first_port=first_port,
        )  # fmt: skip
    except (net.NotReady, OSError, ValueError) as error:
        print(f"{gateway.name} failed: {error}", file=sys.stderr)
        return None


def measured(
    chosen: Sequence[Gateway], args: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Round after round, `--at-once` gateways at a time: each has its own fleet and load."""
    with ThreadPoolExecutor(args.at_once) as pool:
        for seed in range(args.rounds):
            for start in range(0, len(chosen), args.at_once):
                group = chosen[start : start + args.at_once]
                names = [gateway.name for gateway in group]
                print(f"round {seed + 1} of {args.rounds}: {', '.join(names)}", file=sys.stderr)
                one = partial(measure, args, seed)
                found = pool.map(one, range(21000, 31000, 1024), group)
                yield from ((n, d) for n, d in zip(names, found, strict=True) if d is not None)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scenario", default="prefix-affinity", metavar="NAME|FILE", help=", ".join(shipped())
    )
    parser.add_argument("--trace", metavar="FILE", help="in place of the scenario's own trace")
    parser.add_argument("--requests", type=int, default=600, help="the first so many")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=1, help="gateways at the same time")
    parser.add_argument("--timeout", type=float, default=120, help="of a request, seconds")
    parser.add_argument("--gateway-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--json", action="store_true", help="all rounds on stdout, no table")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    limits.raise_open_files()
    try:
        about = load(args.scenario).about
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    chosen = gateways.choose(args.only, args.peer, byte_exact=False)
    results: dict[str, list[dict[str, Any]]] = {}
    for name, document in measured(chosen, args):
        results.setdefault(name, []).append(document)
    if args.json:
        print(json.dumps({"scenario": args.scenario, "results": results}))
    else:
        console = Console(width=220)
        console.print(f"{args.scenario}: {about}")
        console.print(f"{args.requests} requests, {args.rounds} rounds, {args.at_once} at once")
        console.print(table(results, {g.name: g.best_policy for g in chosen}))
        documents = [document for rounds in results.values() for document in rounds]
        busiest = max(map(scenarios.share, documents), default=0)
        console.print(f"mock and harness used at most {busiest:.0%} of a core in each run")
        for doubt in scenarios.doubts(documents, args.at_once):
            console.print(f"warning: {doubt}")
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
