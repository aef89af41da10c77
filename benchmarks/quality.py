"""P99 TTFT of every policy in every scenario, as a ratio to the best: benchmarks/quality.md.

    python benchmarks/quality.py [--seeds 3] [--traces FOLDER] [--write]

Runs the simulator, which drives the real router; some ten minutes on one core. The traces (Azure
2023 conversations, Mooncake conversations) are read from FOLDER when they are there.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path

import msgspec

from headrace.core.balancer import POLICIES
from headrace.sim.command import simulate
from headrace.sim.scenario import Replicas, Scenario, Traffic, load
from headrace.sim.traffic import Open, source_of

NAMES = ("slow-node", "mid-slow", "a10", "sys", "hot", "multi", "burst", "hetero", "crash")
OUTPUT = Path(__file__).parent / "quality.md"


def trace_scenarios(folder: Path) -> dict[str, Scenario]:
    """Scenarios on recorded traffic, for the traces that are there."""
    found = {}
    azure, mooncake = folder / "azure_llm_2023_conv.csv", folder / "mooncake_conversation.jsonl"
    if azure.is_file():
        found["azure"] = Scenario(
            [Replicas(4)], Traffic(dataset=str(azure), requests=19_366, rate=40.0), name="azure"
        )
    if mooncake.is_file():
        found["moon 80"] = Scenario(
            [Replicas(8)], Traffic(dataset=str(mooncake), requests=12_031, rate=14.0), name="moon"
        )
    return found


def p99(values: list[float]) -> float:
    """The 99th percentile, without interpolation."""
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else math.nan


def measure(scenario: Scenario, seeds: int, policies: tuple[str, ...]) -> dict[str, float]:
    """{policy: mean over seeds of the P99 TTFT in seconds}."""
    found: dict[str, list[float]] = {policy: [] for policy in policies}
    for seed in range(seeds):
        shared = source_of(scenario, seed)
        for policy in policies:
            source = shared if isinstance(shared, Open) else None
            found[policy].append(p99(simulate(scenario, policy, seed, source).ttft_s))
    return {policy: statistics.fmean(values) for policy, values in found.items()}


def table(results: dict[str, dict[str, float]], policies: tuple[str, ...]) -> str:
    """The results as a Markdown table of ratios to the best policy, and the best in ms."""
    lines = [
        "| policy | " + " | ".join(results) + " | g. mean |",
        "|---|" + "---|" * (len(results) + 1),
    ]
    best = {name: min(row.values()) for name, row in results.items()}
    for policy in policies:
        ratios = [results[name][policy] / best[name] for name in results]
        mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
        cells = [f"**{r:.2f}**" if r < 1.005 else f"{r:.2f}" for r in ratios]
        lines.append(f"| {policy} | " + " | ".join(cells) + f" | {mean:.2f} |")
    lines.append("| *best, ms* | " + " | ".join(f"{b * 1000:.0f}" for b in best.values()) + " | |")
    return "\n".join(lines)


def main() -> int:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"))
    parser.add_argument("--only", nargs="*", help="scenarios")
    parser.add_argument("--requests", type=int, help="instead of each scenario's own number")
    parser.add_argument("--write", action="store_true", help=f"write {OUTPUT.name}")
    args = parser.parse_args()
    scenarios = {name: load(name) for name in NAMES} | trace_scenarios(args.traces)
    results = {}
    for name, scenario in scenarios.items():
        if args.only and name not in args.only:
            continue
        if args.requests:
            traffic = msgspec.structs.replace(scenario.traffic, requests=args.requests)
            scenario = msgspec.structs.replace(scenario, traffic=traffic)
        began = time.monotonic()
        results[name] = measure(scenario, args.seeds, POLICIES)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    text = table(results, POLICIES)
    print(text)
    if args.write:
        head = (
            "# Routing quality\n\nP99 TTFT as a ratio to the best policy of each scenario, mean of "
            f"{args.seeds} seeds; made by `python benchmarks/quality.py --write`.\n"
            "The engines are models with published coefficients, not GPUs; the router is the real "
            "one.\nScenarios: `src/headrace/sim/scenarios/`.\n\n"
        )
        OUTPUT.write_text(head + text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
