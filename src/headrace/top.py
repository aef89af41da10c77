"""Watch a running gateway in the terminal: the five numbers, every replica, what happened last."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from typing import Any

import aiohttp
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace import __version__

EXAMPLE = "headrace top http://127.0.0.1:29000"
SPARKS = " ▁▂▃▄▅▆▇█"
COLOURS = {
    "ready": "green",
    "warming": "yellow",
    "degraded": "yellow",
    "draining": "yellow",
    "ejected": "red",
    "drained": "dim",
    "good": "green",
    "warn": "yellow",
    "bad": "red",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `top`."""
    parser.add_argument(
        "url", nargs="?", default="http://127.0.0.1:29000", help="admin URL (default: %(default)s)"
    )
    parser.add_argument(
        "--api-key", help="admin key (else $HEADRACE_AUTH__ADMIN_API_KEY)", metavar="KEY"
    )
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between updates")
    parser.add_argument("--once", action="store_true", help="print one picture and end")
    parser.add_argument("--json", action="store_true", help="print one document and end")
    parser.add_argument("--quiet", action="store_true", help="no messages on stderr")


def run(args: argparse.Namespace) -> int:
    """Show until interrupted; 1 if the gateway does not answer, 2 for bad usage."""
    if not args.url.startswith(("http://", "https://")):
        print(f"headrace top: not an http URL: {args.url!r}", file=sys.stderr)
        return 2
    if not args.interval > 0:
        print(f"headrace top: --interval: wanted > 0, got {args.interval}", file=sys.stderr)
        return 2
    try:
        return asyncio.run(watch(args))
    except aiohttp.ClientResponseError as error:
        hint = "; is --api-key the admin key?" if error.status == 401 else ""
        print(f"headrace top: {args.url}: {error.status} {error.message}{hint}", file=sys.stderr)
        return 1
    except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
        if not args.quiet:
            print(f"headrace top: {args.url}: {error}", file=sys.stderr)
        return 1


async def fetch(session: aiohttp.ClientSession, args: argparse.Namespace) -> dict[str, Any]:
    """The dashboard's document; raises ClientError for anything but a 200."""
    url = args.url.rstrip("/") + "/dashboard/data"
    key = args.api_key or os.environ.get("HEADRACE_AUTH__ADMIN_API_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with session.get(url, headers=headers, raise_for_status=True) as answer:
        document: dict[str, Any] = await answer.json()
        return document


async def watch(args: argparse.Namespace) -> int:
    """Poll and draw."""
    console = Console()
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        document = await fetch(session, args)
        if args.json:
            print(json.dumps({"headrace": __version__, "command": "top", **document}))
            return 0
        if args.once:
            console.print(picture(document))
            return 0
        with Live(picture(document), console=console, screen=console.is_terminal) as live:
            while True:
                await asyncio.sleep(args.interval)
                live.update(picture(await fetch(session, args)))


def plain(text: str) -> Text:
    """A name from a replica: no markup, and no control characters for the terminal."""
    return Text("".join(c if c.isprintable() else "�" for c in text))


def number(value: float | None, unit: str) -> str:
    """A value for people; `–` when unknown."""
    if value is None:
        return "–"
    if unit == "seconds":
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
    return f"{value:.0%}" if unit == "percent" else f"{value:.0f}"


def spark(points: list[float | None], width: int = 22) -> str:
    """The last points as block characters; unknown ones are blanks."""
    points = points[-width:]
    top = max((p for p in points if p is not None), default=0.0) or 1.0
    return "".join(" " if p is None else SPARKS[round(8 * min(p / top, 1.0))] for p in points)


def bar(value: float | None, limit: float, text: str, width: int = 5) -> str:
    """A short bar with its figure."""
    if value is None or limit <= 0:
        return f"{'':{width}} {text}"
    filled = round(width * min(value / limit, 1.0))
    return "█" * filled + "░" * (width - filled) + f" {text}"


def picture(document: dict[str, Any]) -> Group:
    """The whole screen. Names from replicas are shown as plain text, never as markup."""
    head = Text(
        f"headrace {document['version']}  policy {document['policy']}  "
        f"{document['serving']}/{len(document['replicas'])} replicas  "
        f"{document['rate']:.1f} requests/s  {time.strftime('%H:%M:%S')}"
    )
    tiles = Table.grid(expand=True)
    cells = []
    for entry in document["numbers"]:
        tiles.add_column(ratio=1)
        colour = COLOURS.get(entry["level"], "")
        body = Text(number(entry["value"], entry["unit"]) + "\n", style=f"bold {colour}".strip())
        body.append(spark(entry["history"]), style="cyan")
        cells.append(Panel(body, title=entry["title"], title_align="left"))
    tiles.add_row(*cells)
    return Group(head, tiles, replica_table(document["replicas"]), changes(document["changes"]))


def replica_table(replicas: list[dict[str, Any]]) -> Table:
    """A row for each replica."""
    table = Table(expand=True, header_style="dim", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    widths = {"replica": 15, "state": 8, "in flight": 9, "queue": 5, "KV": 10, "speed": 6}
    for name in (*widths, "hits", "GPU"):
        table.add_column(name, overflow="ellipsis", no_wrap=True, min_width=widths.get(name, 4))
    table.add_column("reason", overflow="ellipsis", no_wrap=True, ratio=1)
    for r in replicas:
        speed = "–" if r["speed"] is None else f"× {r['speed']:.2f}"
        table.add_row(
            plain(r["id"]),
            Text(r["state"], style=COLOURS.get(r["state"], "")),
            bar(r["inflight"], r["max_concurrency"], str(r["inflight"])),
            number(r["waiting"], "plain"),
            bar(r["kv_usage"], 1.0, number(r["kv_usage"], "percent")),
            speed,
            number(r["hit_ratio"], "percent"),
            number(r["gpu_util"], "percent"),
            plain(r["reason"]),
        )
    return table


def changes(entries: list[dict[str, Any]]) -> Table:
    """The last state changes."""
    table = Table(expand=True, header_style="dim", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("time", "replica", "state change"):
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    table.add_column("reason", overflow="ellipsis", no_wrap=True, ratio=1)
    for entry in entries[:8]:
        table.add_row(
            time.strftime("%H:%M:%S", time.localtime(entry["time"])),
            plain(entry["replica"]),
            Text(f"{entry['from']} → {entry['to']}"),
            plain(entry["reason"]),
        )
    return table
