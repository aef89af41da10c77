"""What several gateways that share nothing cost: P99 TTFT and prefix hits by number of gateways.

python benchmarks/gateways.py [--seed N] [--requests N]
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from headrace.sim.command import simulate
from headrace.sim.scenario import load

SCENARIOS = ("slow-node", "sys", "multi")
POLICIES = ("cost_aware", "cache_aware", "prefix_hash", "consistent_hash", "least_load")
GATEWAYS = (1, 2, 4, 8)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=6000)
    args = parser.parse_args()
    print("| scenario | policy | " + " | ".join(f"{n}" for n in GATEWAYS) + " |")
    print("|---|---|" + "---|" * len(GATEWAYS))
    for name in SCENARIOS:
        base = load(name)
        traffic = msgspec.structs.replace(base.traffic, requests=args.requests)
        for policy in POLICIES:
            cells = []
            for gateways in GATEWAYS:
                scenario = msgspec.structs.replace(base, traffic=traffic, gateways=gateways)
                out = simulate(scenario, policy, args.seed)
                ttft = sorted(out.ttft_s)
                p99_ms = ttft[int(0.99 * (len(ttft) - 1))] * 1000
                cells.append(f"{p99_ms:.0f} ms, {out.hit_tokens / out.prompt_tokens:.0%}")
            print(f"| {name} | {policy} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
