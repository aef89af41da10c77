"""P99 TTFT of every policy in the ten scenarios of the policy study, as a ratio to the best.

    python benchmarks/quality.py --traces FOLDER [--write]

Runs the simulator, which drives the real router, policy after policy on the same traffic; some ten
minutes on one core. FOLDER holds the Azure 2023 conversation trace; without it `azure` is left out.
Exits with 1 if a limit is missed. `--write` renews the table in benchmarks/decisions.md.
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
from headrace.sim.scenario import Scenario, load
from headrace.sim.traffic import Open, source_of

SHIPPED = {
    "slow": "slow-node",
    **{n: n for n in ("mid-slow", "a10", "sys", "hot", "multi", "burst", "hetero", "crash")},
}
TRACED = "azure"
GAUGE_LAG_S = 2.0  # gauges are read each second: 2 to 3 s old when a decision meets them
OURS = "cost_aware"
BEST_RATIO = 1.1  # of the best policy's P99, in every scenario
LEAST_LOAD_RATIO = {"slow": 0.75, "hetero": 0.75, "sys": 0.1, "hot": 0.1}
OUTPUT = Path(__file__).parent / "decisions.md"
HEAD = """# Quality of the decisions

P99 TTFT as a ratio to the best policy of each scenario, mean of {seeds} seeds; bold: best. All of
it from one run of

    python benchmarks/quality.py --traces FOLDER --write

where FOLDER holds `{trace}`, the conversations of 2023 in the Azure public dataset. The simulator
(`headrace sim`, scenario files in `src/headrace/sim/scenarios/`) puts the real router before engine
models with published coefficients; these are no GPUs. The first tenth of a run is not counted.
Prompt lengths reach the router with a 20 % error, output lengths not at all, gauges each second and
then {lag:.0f} s old.

{table}

Limits, checked by the same command: `cost_aware` at most {best} × the best policy in every
scenario, at most 0.75 × `least_load` in `slow` and `hetero`, 0.1 × in `sys` and `hot`. {verdict}
"""

Results = dict[str, dict[str, float]]  # {scenario: {policy: P99 TTFT in seconds}}


def scenarios(traces: Path | None) -> dict[str, Scenario]:
    """The ten, or nine where the trace is missing."""
    found = {name: load(file) for name, file in SHIPPED.items()}
    traced = load(TRACED)
    path = (traces or Path()) / traced.traffic.dataset
    if path.is_file():
        traffic = msgspec.structs.replace(traced.traffic, dataset=str(path))
        found[TRACED] = msgspec.structs.replace(traced, traffic=traffic)
    return {
        name: msgspec.structs.replace(scenario, gauge_lag_s=GAUGE_LAG_S)
        for name, scenario in found.items()
    }


def shortened(scenario: Scenario, requests: int) -> Scenario:
    """The same with another number of requests."""
    traffic = msgspec.structs.replace(scenario.traffic, requests=requests)
    return msgspec.structs.replace(scenario, traffic=traffic)


def p99(values: list[float]) -> float:
    """The 99th percentile, without interpolation."""
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else math.nan


def measure(scenario: Scenario, seeds: int, policies: list[str]) -> dict[str, float]:
    """{policy: mean over seeds of the P99 TTFT in seconds}."""
    found: dict[str, list[float]] = {policy: [] for policy in policies}
    for seed in range(seeds):
        shared = source_of(scenario, seed)
        for policy in policies:
            source = shared if isinstance(shared, Open) else None
            found[policy].append(p99(simulate(scenario, policy, seed, source).ttft_s))
    return {policy: statistics.fmean(values) for policy, values in found.items()}


def missed(results: Results) -> list[str]:
    """What is above its limit, in words; empty if all is well or not measured."""
    found = []
    for name, row in results.items():
        limits = {"least_load": LEAST_LOAD_RATIO[name]} if name in LEAST_LOAD_RATIO else {}
        for policy, limit in {**dict.fromkeys(row, BEST_RATIO), **limits}.items():
            if OURS in row and policy in row and row[OURS] > limit * row[policy]:
                ratio = row[OURS] / row[policy]
                found.append(f"{name}: {OURS} is {ratio:.2f} x {policy}, the limit is {limit}")
    return found


def table(results: Results, policies: list[str]) -> str:
    """The results as a Markdown table of ratios to the best policy, and the best in ms."""
    best = {name: min(row.values()) for name, row in results.items()}
    lines = [
        "| policy | " + " | ".join(results) + " | g. mean |",
        "|---|" + "---|" * (len(results) + 1),
    ]
    for policy in policies:
        ratios = [results[name][policy] / best[name] for name in results]
        mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
        cells = [f"{r:.3g}" if r >= 10 else f"{r:.2f}" for r in ratios]
        cells = [f"**{c}**" if c == "1.00" else c for c in cells]
        lines.append(f"| {policy} | " + " | ".join(cells) + f" | {mean:.2f} |")
    lines.append("| *best, ms* | " + " | ".join(f"{b * 1000:.0f}" for b in best.values()) + " | |")
    return "\n".join(lines)


def write(text: str, seeds: int, verdict: str) -> None:
    """Renew what stands before the first section of the document; the rest is kept."""
    rest = OUTPUT.read_text().partition("\n## ")
    trace = load(TRACED).traffic.dataset
    head = HEAD.format(
        seeds=seeds, trace=trace, lag=GAUGE_LAG_S, table=text, best=BEST_RATIO, verdict=verdict
    )
    OUTPUT.write_text(head + rest[1] + rest[2])


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="has the trace of 2023")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="scenarios")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--requests", type=int, help="instead of each scenario's own number")
    parser.add_argument("--write", action="store_true", help=f"renew {OUTPUT.name}")
    return parser.parse_args()


def main() -> int:
    """Print the table and what misses its limit, and write it where asked."""
    args, results = arguments(), {}
    for name, scenario in scenarios(args.traces).items():
        if args.only and name not in args.only:
            continue
        began = time.monotonic()
        asked = shortened(scenario, args.requests) if args.requests else scenario
        results[name] = measure(asked, args.seeds, args.policies)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    text, above = table(results, args.policies), missed(results)
    print(text, *above, sep="\n")
    if args.write:
        write(text, args.seeds, "; ".join(above) or "All are kept.")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
