"""Simulate a fleet: the real router over engine models, policies side by side, any size, no GPU."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from headrace import __version__
from headrace.bench.summary import distribution
from headrace.bench.traces import TraceError
from headrace.core.balancer import POLICIES
from headrace.errors import HeadraceError
from headrace.mock.presets import DEFAULT_PRESET, PRESETS
from headrace.sim import report
from headrace.sim.fleet import Fleet, Outcome
from headrace.sim.scenario import Replicas, Scenario, ScenarioError, Traffic, checked, load, shipped
from headrace.sim.traffic import Open, Source, is_trace, source_of

EXAMPLE = "headrace sim --scenario slow-node --policy cost_aware least_load round_robin"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `sim`."""
    parser.add_argument(
        "--scenario", metavar="FILE", help=f"a scenario file, or one of: {', '.join(shipped())}"
    )
    parser.add_argument("--replicas", type=int, metavar="N", help="that many equal replicas")
    parser.add_argument("--preset", choices=sorted(PRESETS), help=f"engine ({DEFAULT_PRESET})")
    parser.add_argument("--rate", type=float, metavar="R", help="requests/s")
    parser.add_argument("--requests", type=int, metavar="N", help="requests in all")
    parser.add_argument("--input-tokens", type=int, metavar="N", help="mean prompt length")
    parser.add_argument("--output-tokens", type=int, metavar="N", help="mean answer length")
    parser.add_argument("--gateways", type=int, metavar="N", help="gateways that share nothing")
    parser.add_argument(
        "--trace", metavar="FILE", help="Mooncake jsonl, Azure csv, or an access log of headrace"
    )
    parser.add_argument("--policy", nargs="+", choices=POLICIES, metavar="NAME", help="policies")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with plots")
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same output (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def scenario_of(args: argparse.Namespace) -> Scenario:
    """The scenario that the options describe; raises ScenarioError."""
    if args.scenario is None and args.replicas is None:
        raise ScenarioError("give --scenario FILE or --replicas N")
    base = load(args.scenario) if args.scenario else Scenario([Replicas(4)], Traffic(rate=10.0))
    replicas = base.replicas
    if args.replicas is not None or args.preset is not None:
        own = base.replicas[0]
        replicas = [
            msgspec.structs.replace(
                own,
                count=args.replicas if args.replicas is not None else base.replica_count,
                preset=args.preset or own.preset,
            )
        ]
    wanted = {
        "dataset": args.trace,
        "requests": args.requests,
        "rate": args.rate,
        "input_tokens": args.input_tokens,
        "output_tokens": args.output_tokens,
    }
    changes = {key: value for key, value in wanted.items() if value is not None}
    if args.trace and args.rate is None and not is_trace(base.traffic):
        changes["rate"] = None  # at its own times, unless it stands for the scenario's own trace
    if args.trace and args.requests is None and args.scenario is None:
        changes["requests"] = 1_000_000
    scenario = msgspec.structs.replace(
        base, replicas=replicas, traffic=msgspec.structs.replace(base.traffic, **changes)
    )
    if args.gateways is not None:
        scenario = msgspec.structs.replace(scenario, gateways=args.gateways)
    return checked(scenario)


def simulate(scenario: Scenario, policy: str, seed: int, source: Source | None = None) -> Outcome:
    """One run; an open source may be passed in to spare its preparation."""
    return Fleet(scenario, policy, seed, source or source_of(scenario, seed)).run()


def figures(scenario: Scenario, policy: str, outcome: Outcome) -> dict[str, Any]:
    """A run as it stands in the JSON document."""
    prompts = outcome.prompt_tokens
    return {
        "policy": policy,
        "requests": outcome.finished,
        "rejected": outcome.rejected,
        "lost": outcome.lost,
        "attempts": outcome.attempts,
        "duration_s": outcome.duration_s,
        "ttft_s": distribution(outcome.ttft_s),
        "tpot_s": distribution(outcome.tpot_s),
        "e2e_s": distribution(outcome.e2e_s),
        "prefix_hit_ratio": outcome.hit_tokens / prompts if prompts else 0.0,
        "decisions": outcome.decisions,
        "per_replica": [
            {"requests": n, "utilization": busy}
            for n, busy in zip(outcome.requests, outcome.busy_ratio, strict=True)
        ],
    }


def run(args: argparse.Namespace) -> int:
    """Run every policy on the same traffic; 2 for a bad scenario."""
    try:
        scenario = scenario_of(args)
        policies = args.policy or scenario.policies or ["cost_aware", "least_load", "round_robin"]
        runs, outcomes = [], {}
        shared = source_of(scenario, args.seed)
        for policy in policies:
            began = time.monotonic()
            source = shared if isinstance(shared, Open) else None
            outcome = simulate(scenario, policy, args.seed, source)
            outcomes[policy] = outcome
            runs.append(figures(scenario, policy, outcome))
            if not args.quiet:
                spent_s = time.monotonic() - began
                text = f"{policy}: {outcome.duration_s:.0f} s of fleet time in {spent_s:.1f} s"
                print(text, file=sys.stderr)
    except (ScenarioError, TraceError, HeadraceError) as error:
        print(f"headrace sim: {error}", file=sys.stderr)
        return 2
    document = {
        "headrace": __version__,
        "command": "sim",
        "scenario": msgspec.to_builtins(scenario),
        "seed": args.seed,
        "runs": runs,
    }
    if args.html is not None:
        args.html.write_text(report.html(document, outcomes))
    if args.json:
        print(json.dumps(document))
    else:
        report.table(document)
    return 0
