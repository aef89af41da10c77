"""Memory of a gateway with thousands of slow streams open, and over many short requests.

10 000 streams of one event every few seconds through one process: memory for each stream (Pss of
the process tree, against the same tree before), every event checked. Then 200 000 short requests:
memory must stay flat.

    python benchmarks/idle_streams.py --only nginx,headrace
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from rig import gateways, limits, loadgen, net, proctree
from rig.gateways import Gateway

REPLICAS = 4
STEP_S = 4
EVENTS = 5
SLICES = 10
SPARE_FILES = 300


def measure_streams(
    gateway: Gateway, ports: Sequence[int], args: argparse.Namespace
) -> dict[str, Any]:
    """Open all streams, weigh them while all are idle, and see each of them to its end."""
    # Opened over half a step; an answer takes EVENTS - 1 steps or more; weighed a step later.
    load = {"stream": True, "connections": args.streams, "requests": args.streams, "events": EVENTS}
    load |= {"spread_us": int(STEP_S * 0.5e6), "seconds": 60}
    with gateways.running(gateway, ports, core=args.gateway_core) as (port, process):
        loadgen.generate(port, core=args.load_core, connections=64, seconds=1)
        before = proctree.memory_bytes(process.pid)
        with loadgen.running(port, core=args.load_core, **load) as generator:
            time.sleep(STEP_S * 1.7)
            during = proctree.memory_bytes(process.pid)
            output, _ = generator.communicate()
    result = json.loads(output)
    return {
        "kb_per_stream": (during - before) / args.streams / 1000,
        "memory_mb": during / 1e6,
        "memory_before_mb": before / 1e6,
        "completed": result["completed"],
        "first_byte_p99_s": result["first_byte_us"]["p99"] / 1e6,
    }


def measure_flatness(
    gateway: Gateway, ports: Sequence[int], args: argparse.Namespace
) -> dict[str, Any]:
    """Memory after each tenth of many short requests."""
    memory_mb = []
    with gateways.running(gateway, ports, core=args.gateway_core) as (port, process):
        for _ in range(SLICES):
            load = {"connections": 64, "requests": args.requests // SLICES, "seconds": 60}
            loadgen.generate(port, core=args.load_core, **load)
            memory_mb.append(round(proctree.memory_bytes(process.pid) / 1e6, 2))
    return {"memory_mb": memory_mb, "growth_mb": round(memory_mb[-1] - memory_mb[1], 2)}


def fit_streams(args: argparse.Namespace) -> None:
    """A gateway holds two sockets a stream: take fewer streams where that many cannot be open."""
    limit = limits.raise_open_files()
    if limit < 2 * args.streams + SPARE_FILES:
        args.streams = (limit - SPARE_FILES) // 2
        print(f"open files are limited to {limit}: {args.streams} streams", file=sys.stderr)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=lambda text: text.split(","), default=["nginx", "headrace"])
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--gateway-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    loadgen.build()
    fit_streams(args)
    found = {}
    for gateway in gateways.choose(args.only, args.peer):
        try:
            with loadgen.replicas(
                REPLICAS,
                core=args.load_core,
                step_ms=STEP_S * 1000,
                events=EVENTS,
                any_body=gateway.rewrites_bodies,
            ) as ports:
                streams = measure_streams(gateway, ports, args)
                flatness = measure_flatness(gateway, ports, args) if args.requests else None
        except (loadgen.LoadError, net.NotReady) as error:
            print(f"{gateway.name} failed: {error}", file=sys.stderr)
            continue
        found[gateway.name] = {"streams": streams, "flatness": flatness}
        if not args.json:
            print_result(gateway.name, streams, flatness, args)
    if args.json:
        print(json.dumps(found))
    return 0 if found else 1


def print_result(
    name: str, streams: dict[str, Any], flatness: dict[str, Any] | None, args: argparse.Namespace
) -> None:
    print(
        f"{name:12} {streams['completed']} of {args.streams} streams complete, "
        f"{streams['kb_per_stream']:.1f} KB each, process tree {streams['memory_mb']:.0f} MB "
        f"(before: {streams['memory_before_mb']:.0f})"
    )
    if flatness:
        print(
            f"{'':12} over {args.requests} requests, MB after each tenth: {flatness['memory_mb']}; "
            f"growth after the first two tenths {flatness['growth_mb']} MB"
        )


if __name__ == "__main__":
    sys.exit(main())
