"""CPU that a gateway adds to each request and each streamed event, side by side with nginx.

Gateway on one core, fake replicas and load generator on another; CPU time of the gateway's whole
process tree from /proc, divided by what it carried. Runs alternate between gateways; medians over
the rounds, and the ratio to the first gateway within each round. Latency is open-loop, at half of
what the slowest gateway carried in that round.

    python benchmarks/overhead.py --quick
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rig import gateways, limits, loadgen, net, proctree
from rig.gateways import Gateway

REPLICAS = 4
STEP_MS = 20
EVENTS = 100
ANSWER_S = STEP_MS * EVENTS / 1000

Figures = dict[str, float]
Rounds = Sequence[dict[str, dict[str, Figures]]]  # of gateway, of case


@dataclass(frozen=True)
class Case:
    """One kind of load; its cost is reported per `unit`, a key of the generator's result."""

    name: str
    unit: str
    load: dict[str, Any]


def cases(mode: Sequence[str], seconds: float) -> Iterator[Case]:
    """The loads of the chosen modes."""
    if "json" in mode:
        for body_bytes in (1024, 16384):
            load = {"connections": 64, "body_bytes": body_bytes, "seconds": seconds}
            yield Case(f"json {body_bytes // 1024} KB", "completed", load)
    if "stream" in mode:
        for streams in (64, 512):
            load = {"stream": True, "connections": streams, "events": EVENTS}
            load |= {"spread_us": int(ANSWER_S * 1e6), "seconds": seconds + ANSWER_S}
            yield Case(f"stream x{streams}", "events", load)


def measure(case: Case, port: int, pid: int, args: argparse.Namespace) -> Figures:
    """Run one load through a gateway; CPU is per unit of the case."""
    before = proctree.cpu(pid)
    result = loadgen.generate(port, core=args.load_core, spin=args.spin, **case.load)
    loadgen.settle()
    spent = proctree.cpu(pid) - before
    units = result[case.unit]
    return {
        "cpu_us": spent.total_s / units * 1e6,
        "user_us": spent.user_s / units * 1e6,
        "system_us": spent.system_s / units * 1e6,
        "busy_ratio": spent.total_s / result["duration_s"],
        "per_s": units / result["duration_s"],
        "events_per_read": result["events"] / result["reads"],
        "memory_mb": proctree.memory_bytes(pid) / 1e6,
    }


def measure_latency(
    port: int, rate: float, args: argparse.Namespace, pid: int | None = None
) -> Figures:
    """Latency of 1 KB requests that are due at a fixed mean rate, and CPU if there is a gateway."""
    before = proctree.cpu(pid) if pid else None
    load = {"connections": 64, "body_bytes": 1024, "seconds": args.seconds, "rate": rate}
    result = loadgen.generate(port, core=args.load_core, spin=args.spin, **load)
    found: Figures = result["latency_us"] | {"rate": rate}
    if pid and before:
        found["cpu_us"] = (proctree.cpu(pid) - before).total_s / result["completed"] * 1e6
    return found


def start_replicas(
    args: argparse.Namespace, *, any_body: bool = False
) -> AbstractContextManager[list[int]]:
    """Fake replicas on the load core; their ports."""
    return loadgen.replicas(
        REPLICAS,
        core=args.load_core,
        step_ms=STEP_MS,
        events=EVENTS,
        any_body=any_body,
        spin=args.spin,
    )


@contextmanager
def started(gateway: Gateway, args: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """A gateway and its replicas, fresh and warmed up; port and process id."""
    with (
        start_replicas(args, any_body=gateway.rewrites_bodies) as ports,
        gateways.running(gateway, ports, core=args.gateway_core) as (port, process),
    ):
        loadgen.generate(port, core=args.load_core, connections=64, seconds=1)
        yield port, process.pid


def measure_round(
    chosen: Sequence[Gateway], args: argparse.Namespace
) -> dict[str, dict[str, Figures]]:
    """One pass over all gateways: costs first, then latency at a rate that all of them carry."""
    results: dict[str, dict[str, Figures]] = {}
    for gateway in chosen:
        note(f"{gateway.name} …")
        try:
            with started(gateway, args) as (port, pid):
                results[gateway.name] = {
                    case.name: measure(case, port, pid, args)
                    for case in cases(args.mode, args.seconds)
                }
        except (loadgen.LoadError, net.NotReady) as error:
            note(f"{gateway.name} failed: {error}")
    if "latency" in args.mode:
        capable = [g for g in chosen if g.name in results]
        slowest = min((results[g.name]["json 1 KB"]["per_s"] for g in capable), default=0)
        for name, latency in measure_latencies(capable, args.rate or slowest / 2, args):
            results.setdefault(name, {})["latency"] = latency
    return results


def measure_latencies(
    chosen: Sequence[Gateway], rate: float, args: argparse.Namespace
) -> Iterator[tuple[str, Figures]]:
    """Latency of each gateway, and of the direct way, at one rate."""
    note(f"latency at {rate:.0f} requests/s …")
    for gateway in chosen:
        with started(gateway, args) as (port, pid):
            yield gateway.name, measure_latency(port, rate, args, pid)
    with start_replicas(args) as ports:
        yield "direct", measure_latency(ports[0], rate, args)


def figures(rounds: Rounds, name: str, case: str) -> Figures:
    """Medians over the rounds in which the gateway took part; empty if it never did."""
    seen = [r[name][case] for r in rounds if case in r.get(name, {})]
    return {key: median(s[key] for s in seen) for key in seen[0]} if seen else {}


def ratios(rounds: Rounds, name: str, base: str, case: str) -> list[float]:
    """CPU of one gateway to that of another within the same round."""
    if name == "direct":
        return []
    both = [r for r in rounds if case in r.get(name, {}) and case in r.get(base, {})]
    return [r[name][case]["cpu_us"] / r[base][case]["cpu_us"] for r in both]


def cost_table(rounds: Rounds, names: Sequence[str], args: argparse.Namespace) -> Table:
    """CPU of each gateway for each case."""
    table = new_table("load", "gateway", "CPU µs", "user", "system", f"/ {names[0]}", "range")
    for heading in ("core busy", "per s", "events a read", "MB"):
        table.add_column(heading, justify="right")
    for case in cases(args.mode, args.seconds):
        for name in names:
            if not (cost := figures(rounds, name, case.name)):
                continue
            cpu = [f"{cost[key]:.2f}" for key in ("cpu_us", "user_us", "system_us")]
            pairs = ratios(rounds, name, names[0], case.name)
            spread = f"{min(pairs):.2f}-{max(pairs):.2f}" if pairs else ""
            load = [f"{cost['busy_ratio']:.0%}", f"{cost['per_s']:.0f}"]
            load += [f"{cost['events_per_read']:.2f}" if case.unit == "events" else ""]
            ratio = f"{median(pairs):.2f}" if pairs else ""
            table.add_row(
                case.name, name, *cpu, ratio, spread, *load, f"{cost['memory_mb']:.0f}",
                end_section=name == names[-1],
            )  # fmt: skip
    return table


def latency_table(rounds: Rounds, names: Sequence[str]) -> Table:
    """Latency of each gateway, what it adds to the direct way, and its CPU at that same rate."""
    table = new_table("1 KB at half load", "p50 µs", "p99 µs", "added p50", "added p99", "CPU µs")
    table.add_column(f"/ {names[0]}", justify="right")
    direct = figures(rounds, "direct", "latency")
    for name in [*names, "direct"]:
        if latency := figures(rounds, name, "latency"):
            row = [f"{latency[key]:.0f}" for key in ("p50", "p99")]
            row += [f"{latency[key] - direct[key]:.0f}" for key in ("p50", "p99")]
            if pairs := ratios(rounds, name, names[0], "latency"):
                row += [f"{latency['cpu_us']:.2f}", f"{median(pairs):.2f}"]
            table.add_row(name, *row)
    return table


def new_table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        numeric = heading not in ("load", "gateway", headings[0])
        table.add_column(heading, justify="right" if numeric else "left")
    return table


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def names_list(text: str) -> list[str]:
    return text.split(",")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=names_list, default=[], help="gateways: nginx,headrace")
    parser.add_argument(
        "--mode", type=names_list, default=["json", "stream", "latency"], help="json,stream,latency"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="length of each load")
    parser.add_argument(
        "--quick", action="store_true",
        help="2 rounds of 1 s, nginx and headrace unless --only names others; under two minutes",
    )  # fmt: skip
    parser.add_argument("--rate", type=float, help="of the latency part; default: half load")
    parser.add_argument("--spin", action="store_true", help="replicas and generator never sleep")
    parser.add_argument("--gateway-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=COMMAND",
        help="another gateway; {port} and {replicas} are filled in",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="all rounds on stdout, no table")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds = 2, 1
        args.only = args.only or ["nginx", "headrace"]
    if "latency" in args.mode and "json" not in args.mode and not args.rate:
        parser.error("--mode latency needs json too, or --rate")
    return args


def print_result(rounds: Rounds, versions: dict[str, str], args: argparse.Namespace) -> None:
    console = Console(width=120)
    console.print(
        f"{platform.machine()}, Linux {platform.release()}; {'; '.join(versions.values())}"
    )
    console.print(f"medians of {args.rounds} rounds, loads of {args.seconds:g} s")
    console.print(cost_table(rounds, list(versions), args))
    if "latency" in args.mode:
        console.print(latency_table(rounds, list(versions)))


def main() -> int:
    args = parse_args()
    chosen = gateways.choose(args.only, args.peer)
    if not chosen:
        return 1
    loadgen.build()
    limits.raise_open_files()
    rounds = []
    for number in range(args.rounds):
        note(f"round {number + 1} of {args.rounds}")
        rounds.append(measure_round(chosen, args))
    versions = {g.name: gateways.version(g) for g in chosen}
    if args.json:
        document = {"versions": versions, "linux": platform.release(), "rounds": rounds}
        print(json.dumps(document))
    else:
        print_result(rounds, versions, args)
    return 0 if all(rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
