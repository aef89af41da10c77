"""Shows how a run goes, on stderr and only there."""

from __future__ import annotations

import asyncio
import sys

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headrace.bench.load import Run

EVERY_S = 0.5


def tell(quiet: bool, text: str) -> None:
    """One line of progress."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


async def watch(work: asyncio.Future[None], run: Run, *, quiet: bool) -> None:
    """Wait for the work; on a terminal, show a line that is renewed twice a second."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        await work
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        try:
            while not work.done():
                await asyncio.wait([work], timeout=EVERY_S)
                live.update(Text(line(run)), refresh=True)
        finally:
            work.cancel()  # does nothing to work that is done
    await work


def line(run: Run) -> str:
    """The state of a run in a line."""
    record = run.record
    recent = sorted(s.ttft_s for s in record.samples[-200:] if s.ttft_s is not None)
    ttft = f"{recent[len(recent) // 2] * 1000:.0f} ms" if recent else "–"
    failed = sum(not s.ok for s in record.samples)
    return (
        f"{run.now_s():6.1f} s  sent {record.sent}  done {len(record.samples)}  not ok {failed}  "
        f"in flight {record.in_flight}  awaiting first token {record.awaiting}  "
        f"median TTFT of the last 200: {ttft}"
    )
