"""What several gateways that share nothing cost, and what the engines' KV events give back.

python benchmarks/gateways.py [--requests N]
python benchmarks/gateways.py --ratios [--requests N]

P99 TTFT and prefix hits by number of gateways (seed 0); or, for four of them, P99 TTFT as a ratio
to that of the best policy of each scenario (geometric means over three seeds).
"""

from __future__ import annotations

import argparse
import sys
from statistics import geometric_mean

import msgspec

from headrace.sim.command import simulate
from headrace.sim.fleet import Outcome
from headrace.sim.scenario import load

SCENARIOS = ("slow-node", "sys", "multi")
MORE_SCENARIOS = ("mid-slow", "a10", "sys", "hot", "multi", "burst", "hetero")
POLICIES = (  # and whether the engines tell what they hold
    ("cost_aware", False),
    ("cost_aware", True),
    ("cache_aware", False),
    ("cache_aware", True),
    ("prefix_hash", False),
    ("consistent_hash", False),
    ("least_load", False),
)
GATEWAYS = (1, 2, 4, 8)
SEEDS = (0, 1, 2)


def run(
    name: str, policy: tuple[str, bool], gateways: int, args: argparse.Namespace, seed: int
) -> Outcome:
    """One simulation."""
    base = load(name)
    traffic = msgspec.structs.replace(base.traffic, requests=args.requests)
    scenario = msgspec.structs.replace(
        base, traffic=traffic, gateways=gateways, kv_events=policy[1]
    )
    return simulate(scenario, policy[0], seed)


def p99_s(outcome: Outcome) -> float:
    """P99 of the time to the first token."""
    return sorted(outcome.ttft_s)[int(0.99 * (len(outcome.ttft_s) - 1))]


def title(policy: tuple[str, bool]) -> str:
    """A policy's name in a table."""
    return policy[0] + (", KV events" if policy[1] else "")


def by_number(args: argparse.Namespace) -> None:
    """P99 and hits for each number of gateways."""
    print("| scenario | policy | " + " | ".join(f"{n}" for n in GATEWAYS) + " |")
    print("|---|---|" + "---|" * len(GATEWAYS))
    for name in SCENARIOS:
        for policy in POLICIES:
            cells = []
            for gateways in GATEWAYS:
                out = run(name, policy, gateways, args, SEEDS[0])
                hits = out.hit_tokens / out.prompt_tokens
                cells.append(f"{p99_s(out) * 1000:.0f} ms, {hits:.0%}")
            print(f"| {name} | {title(policy)} | " + " | ".join(cells) + " |", flush=True)


def by_policy(args: argparse.Namespace) -> None:
    """For four gateways: ratios to the best, means over the seeds; their mean and the worst."""
    ratios: dict[tuple[str, bool], list[float]] = {policy: [] for policy in POLICIES}
    for name in MORE_SCENARIOS:
        times = {p: [p99_s(run(name, p, 4, args, seed)) for seed in SEEDS] for p in POLICIES}
        best = [min(column) for column in zip(*times.values(), strict=True)]
        for policy, row in times.items():
            to_best = [time / least for time, least in zip(row, best, strict=True)]
            ratios[policy].append(geometric_mean(to_best))
    print("| policy | " + " | ".join(MORE_SCENARIOS) + " | mean | worst |")
    print("|---|" + "---|" * (len(MORE_SCENARIOS) + 2))
    for policy, row in ratios.items():
        cells = [*row, geometric_mean(row), max(row)]
        print(f"| {title(policy)} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ratios", action="store_true")
    parser.add_argument("--requests", type=int, default=6000)
    args = parser.parse_args()
    (by_policy if args.ratios else by_number)(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
