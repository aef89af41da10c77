"""What scraping costs the control process: CPU and age of the figures with many replicas.

    PYTHONPATH=src python benchmarks/scrape.py [--replicas 200] [--seconds 20] [--json]

A second process serves the real vLLM page (61 kB) on one port a replica. The control plane of the
gateway runs here, first with scraping all but off, then with it on: the difference is fetch and
parse. Ages are read every 50 ms for each replica, as the metrics page shows them.
Exits 1 above 10 % of a core per 200 pages a second, or a p99 age above 1.5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from headrace import config as configuration
from headrace.control.loop import Control
from headrace.core.segment import Segment

PAGE = Path(__file__).parent.parent / "tests" / "fixtures" / "vllm-0.32.0-metrics-busy.txt"
MAX_CPU_RATIO_PER_200, MAX_AGE_P99_S = 0.10, 1.5
WARM_UP_S = 3.0


class Page(asyncio.Protocol):
    """Answers every request at once; requests come one at a time."""

    metrics = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1]
        body = self.metrics if path == b"/metrics" else b'{"data":[{"id":"tiny"}]}'
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(head + body)  # type: ignore[attr-defined]


def serve(count: int, channel: Connection) -> None:
    """Serve the page on `count` ports and tell which."""

    async def main() -> None:
        Page.metrics = PAGE.read_bytes()
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Page, "127.0.0.1", 0) for _ in range(count)]
        channel.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(main())


async def measure(ports: list[int], interval_s: float, seconds: float) -> tuple[float, list[float]]:
    """CPU share of this process, and the ages seen, with a control plane over these replicas."""
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    tree = {
        "replicas": urls,
        "server": {"admin_port": 0, "processes": 1},
        "control": {"scrape_interval_s": interval_s, "stale_after_s": 2 * interval_s + 3},
        "health": {"probe_interval_s": 0},
        "routing": {"prefix_table_bytes": 65536},
    }
    config = configuration.parse(tree)
    control = Control(config, Segment.create(1, 65536), argparse.Namespace())
    await control.start()
    await asyncio.sleep(WARM_UP_S)
    ages = []
    cpu_s, start = time.process_time(), time.monotonic()
    while (now := time.monotonic()) - start < seconds:
        if int((now - start) * 1000) % 500 < 60:  # ten looks a second would be load themselves
            ages += [age_s(control, member.slot) for member in control.registry.members.values()]
        await asyncio.sleep(0.05)
    share = (time.process_time() - cpu_s) / (time.monotonic() - start)
    await control.close()
    return share, ages


def age_s(control: Control, slot: int) -> float:
    """The age of a replica's figures."""
    row = control.segment.row(slot)
    return (time.monotonic_ns() - row["scraped_at_ns"]) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    replicas = multiprocessing.Process(target=serve, args=(args.replicas, theirs), daemon=True)
    replicas.start()
    ports = ours.recv()
    idle, _ = uvloop.run(measure(ports, 3600.0, args.seconds))
    busy, ages = uvloop.run(measure(ports, 1.0, args.seconds))
    replicas.terminate()
    p99 = statistics.quantiles(ages, n=100)[98]
    found = {
        "replicas": args.replicas,
        "page_bytes": PAGE.stat().st_size,
        "cpu_ratio_fetch_and_parse": busy - idle,
        "cpu_ratio_everything": busy,
        "age_p50_s": statistics.median(ages),
        "age_p99_s": p99,
    }
    if args.json:
        print(json.dumps(found))
    else:
        print(
            f"{args.replicas} replicas, {found['page_bytes']} bytes each, every second: "
            f"fetch and parse {busy - idle:.1%} of a core (control in all {busy:.1%}); "
            f"age p50 {found['age_p50_s']:.2f} s, p99 {p99:.2f} s"
        )
    is_dear = busy - idle > MAX_CPU_RATIO_PER_200 * args.replicas / 200
    raise SystemExit(int(is_dear or p99 > MAX_AGE_P99_S))


if __name__ == "__main__":
    main()
