"""Writes benchmarks/decisions.md: P99 TTFT of every policy in every scenario, over the best.

PYTHONPATH=src:benchmarks python -m decisions --azure AzureLLMInferenceTrace_conv.csv
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from statistics import mean

from headrace.core.balancer import POLICIES

from . import scenarios
from .run import Run

HEAD = """# Quality of the decisions

P99 TTFT as a ratio to the best of the shipped policies (mean of {seeds} seeds, {requests} requests
a run, the first fifth not counted; bold: best). The real Router before the engine models of
`headrace.mock`, in simulated time; prompt lengths reach it with a 20 % error, output lengths not
at all. Scenarios: `benchmarks/decisions/scenarios.py`. Repeat it with

    {command}

"""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m decisions", description=__doc__)
    parser.add_argument("--requests", type=int, default=8000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scenarios", nargs="*", default=list(scenarios.SCENARIOS))
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--azure", type=Path, help="csv of the Azure 2023 conversation trace")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "decisions.md")
    return parser.parse_args()


def measure(name: str, policy: str, args: argparse.Namespace) -> float:
    """Mean P99 over the seeds, in seconds."""
    found = []
    for seed in range(1, args.seeds + 1):
        result = Run(scenarios.SCENARIOS[name](seed, args.requests), policy, seed).run()
        found.append(result.percentile(99))
    print(f"{name:9} {policy:16} P99 {mean(found) * 1e3:9.1f} ms", file=sys.stderr, flush=True)
    return mean(found)


def table(p99: dict[str, dict[str, float]], policies: list[str]) -> str:
    """Rows are policies; the last row has the best in milliseconds."""
    best = {name: min(row.values()) for name, row in p99.items()}
    lines = ["| policy | " + " | ".join(p99) + " | g. mean |", "|" + "---|" * (len(p99) + 2)]
    for policy in policies:
        ratios = [p99[name][policy] / best[name] for name in p99]
        cells = [
            f"**{r:.2f}**" if r == 1 else f"{r:.3g}" if r >= 10 else f"{r:.2f}" for r in ratios
        ]
        middle = math.exp(mean(math.log(r) for r in ratios))
        lines.append(f"| {policy} | " + " | ".join(cells) + f" | {middle:.2f} |")
    lines.append("| *best, ms* | " + " | ".join(f"{b * 1e3:.0f}" for b in best.values()) + " | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all and write the table."""
    args = arguments()
    scenarios.TRACE = args.azure
    p99 = {
        name: {policy: measure(name, policy, args) for policy in args.policies}
        for name in args.scenarios
    }
    command = "PYTHONPATH=src:benchmarks python -m decisions --azure FILE"
    head = HEAD.format(seeds=args.seeds, requests=args.requests, command=command)
    args.out.write_text(head + table(p99, args.policies))


if __name__ == "__main__":
    main()
