"""Runs the shipped scenarios and writes docs/results.md: the simulator, and sockets beside it.

    python benchmarks/results.py --traces FOLDER --network --write

FOLDER holds mooncake_conversation.jsonl (FAST '25 release, Apache 2.0); without it three scenarios
are left out. `--network` also sends the first requests of three scenarios through the gateway to
`headrace mock` in real time, some 18 minutes for three seeds; on a machine that does other things
too, put `chrt -r 10` in front. What was measured before is kept in build/results.json, so that
`--only`, or a run without `--network`, renews a part of the document.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rig import gateways, results_page, scenarios
from rig.scenarios import Cores

from headrace.core.balancer import POLICIES
from headrace.sim.command import figures, simulate
from headrace.sim.scenario import Scenario, load
from headrace.sim.traffic import Open, is_trace, source_of

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "results.json"
OUTPUT = ROOT / "docs" / "results.md"
HEADRACE = next(g for g in gateways.GATEWAYS if g.name == "headrace")
SIMULATED_RUNS = 5
CLASSIC = ("cost_aware", "cache_aware", "least_load", "power_of_two", "round_robin", "random")


@dataclass(frozen=True)
class Network:
    """How a scenario is repeated on sockets."""

    requests: int  # its first ones
    at_once: int = 1  # seeds that run at the same time, where the rig is idle enough
    policies: tuple[str, ...] = ("cost_aware", "least_load", "round_robin")


PLAN: dict[str, tuple[tuple[str, ...], Network | None]] = {
    "a10-classic": (CLASSIC, Network(600, 3)),
    "a10": (CLASSIC, None),
    "slow-node": (CLASSIC, Network(1300)),
    "mid-slow": (CLASSIC, None),
    "prefix-affinity": ((*CLASSIC, "prefix_hash"), Network(700, 3)),
    "retry-storm": (("cost_aware",), None),
    "retry-storm-unbudgeted": (("cost_aware",), None),
    "tp8-10": (POLICIES, None),
    "tp8-125": (POLICIES, None),
    "flash-crowd": (("cost_aware", "least_load"), None),
    "flash-crowd-headroom": (("cost_aware", "least_load"), None),
    "flash-crowd-forecast": (("cost_aware", "least_load"), None),
    "mooncake-8": (POLICIES, None),
}


def scenario_of(name: str, traces: Path) -> Scenario | None:
    """A shipped scenario with its trace; None if the trace is missing."""
    scenario = load(name)
    if not is_trace(scenario.traffic):
        return scenario
    path = traces / scenario.traffic.dataset
    if not path.is_file():
        print(f"{name} is left out: no {path}", file=sys.stderr)
        return None
    return changed(scenario, dataset=str(path))


def changed(scenario: Scenario, **traffic: Any) -> Scenario:
    """The scenario with other traffic."""
    own = msgspec.structs.replace(scenario.traffic, **traffic)
    return msgspec.structs.replace(scenario, traffic=own)


def simulated(scenario: Scenario, policies: Sequence[str], seeds: int) -> dict[str, Any]:
    """{policy: the figures of each seed}, policy after policy on the same traffic."""
    runs: dict[str, Any] = {policy: [] for policy in policies}
    for seed in range(seeds):
        shared = source_of(scenario, seed)
        for policy in policies:
            source = shared if isinstance(shared, Open) else None
            runs[policy].append(figures(scenario, policy, simulate(scenario, policy, seed, source)))
    return runs


def jittered(scenario: Scenario, policy: str, seed: int) -> list[dict[str, Any]]:
    """The traffic of a seed simulated a few times.

    All prompts are of the same few words, so the gateway's estimate of their length is exact after
    the first answers; it is made as exact here. Near its limit a queue makes much of microseconds:
    0.5 % of noise in step times stands for those of the sockets; several runs show what it does.
    """
    noisy = [msgspec.structs.replace(group, noise_ratio=0.005) for group in scenario.replicas]
    exact = msgspec.structs.replace(scenario, estimate_error=0.0, replicas=noisy)
    source = source_of(exact, seed)
    return [
        figures(exact, policy, simulate(exact, policy, seed + 1000 * n, source))
        for n in range(SIMULATED_RUNS)
    ]


def beside(name: str, how: Network, seeds: int, cores: Cores) -> dict[str, Any]:
    """{policy: for each seed the simulator's runs and that of the sockets}, same requests."""
    scenario = changed(load(name), requests=how.requests)
    found: dict[str, Any] = {}
    with ThreadPoolExecutor(how.at_once) as pool:
        for policy in how.policies:
            print(f"{name} on sockets, {policy} …", file=sys.stderr)
            runs = [jittered(scenario, policy, seed) for seed in range(seeds)]

            def one(seed: int, policy: str = policy) -> dict[str, Any]:
                return scenarios.run(
                    HEADRACE, policy, name, scenario.replica_count, seed=seed, cores=cores,
                    options=["--requests", str(how.requests)], first_port=21000 + 512 * seed,
                )  # fmt: skip

            sockets = list(pool.map(one, range(seeds)))
            found[policy] = [{"sims": s, "net": n} for s, n in zip(runs, sockets, strict=True)]
    return {"requests": how.requests, "at_once": how.at_once, "policies": found}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--traces", type=Path, default=Path(), metavar="FOLDER")
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=PLAN, help="scenarios")
    parser.add_argument("--network", action="store_true", help="sockets too")
    parser.add_argument("--no-sim", action="store_true", help="sockets only")
    parser.add_argument("--gateway-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="renew docs/results.md")
    return parser.parse_args()


def measure(name: str, args: argparse.Namespace, kept: dict[str, Any]) -> None:
    """Renew what is kept of one scenario."""
    policies, network = PLAN[name]
    scenario = scenario_of(name, args.traces)
    if scenario is None:
        return
    own = kept.setdefault(name, {})
    own["about"] = scenario.about
    began, cpu = time.monotonic(), time.process_time()
    if not args.no_sim:
        own["requests"] = scenario.traffic.requests
        own["sim"] = simulated(scenario, policies, args.seeds)
        own["sim_cpu_ratio"] = (time.process_time() - cpu) / (time.monotonic() - began)
    if network and args.network:
        own["network"] = beside(name, network, args.seeds, Cores(args.gateway_core, args.load_core))
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def main() -> int:
    """Measure, print, and write the document where asked; 1 if simulator and sockets differ."""
    args = arguments()
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    for name in args.only or PLAN:
        measure(name, args, kept)
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(kept))
    text = results_page.document({n: kept[n] for n in PLAN if n in kept}, args.seeds)
    print(text)
    if args.write:
        OUTPUT.write_text(text)
    found = results_page.differences(kept)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
