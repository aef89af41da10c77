"""CPU that the access log and a scrape each second add to a request, in the data-plane process
and in the whole gateway. Runs with and without alternate; medians over the rounds.

    python benchmarks/observing.py
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median
from typing import Any

from rig import gateways, limits, loadgen, net, proctree

REPLICAS = 4
BASE = next(g for g in gateways.GATEWAYS if g.name == "headrace")


def gateway(admin_port: int, *more: str) -> gateways.Gateway:
    """The gateway of the overhead benchmark with flags of its own; the last one wins."""

    def argv(*about: Any) -> list[str]:
        return [*BASE.argv(*about), "--admin-port", str(admin_port), *more]

    return dataclasses.replace(BASE, argv=argv)


def data_plane(root_pid: int) -> int:
    """The process that relays requests: with --processes 1 there is one."""
    for pid in proctree.tree(root_pid):
        if b"headrace.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise LookupError("no data-plane process")


def scrape(admin_port: int, stop: threading.Event) -> None:
    """Read the metrics page each second, as Prometheus would (it does so every 15 s)."""
    while not stop.wait(1.0):
        connection = http.client.HTTPConnection("127.0.0.1", admin_port)
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        connection.close()


def measure(on: bool, args: argparse.Namespace, log: Path) -> dict[str, float]:
    """One load on a fresh gateway; µs of CPU a request."""
    (admin_port,) = net.free_ports(1)
    flags = ("--access-log", str(log)) if on else ()
    stop = threading.Event()
    with (
        loadgen.replicas(REPLICAS, core=args.load_core) as ports,
        gateways.running(gateway(admin_port, *flags), ports, core=args.gateway_core) as (port, top),
    ):
        loadgen.generate(port, core=args.load_core, connections=64, seconds=1)
        if on:
            threading.Thread(target=scrape, args=(admin_port, stop), daemon=True).start()
        pids = {"data plane": data_plane(top.pid), "gateway": top.pid}
        before = {name: proctree.cpu(pid) for name, pid in pids.items()}
        load = {"connections": 64, "body_bytes": 1024, "seconds": args.seconds}
        done = loadgen.generate(port, core=args.load_core, **load)
        loadgen.settle()
        stop.set()
        spent = {name: (proctree.cpu(pid) - before[name]).total_s for name, pid in pids.items()}
    return {name: s / done["completed"] * 1e6 for name, s in spent.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="length of each load")
    parser.add_argument("--gateway-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    loadgen.build()
    limits.raise_open_files()
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            rounds.append([measure(on, args, Path(folder) / "access.log") for on in (False, True)])
    if args.json:
        print(json.dumps(rounds))
        return 0
    for name in ("data plane", "gateway"):
        off, on = (median(r[i][name] for r in rounds) for i in (0, 1))
        apart = median(r[1][name] / r[0][name] - 1 for r in rounds)
        print(f"{name}: {off:.2f} µs a request without, {on:.2f} µs with; {apart:+.1%} by round")
    return 0


if __name__ == "__main__":
    sys.exit(main())
