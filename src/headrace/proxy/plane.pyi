import asyncio
from collections.abc import Callable

from headrace.config import Config
from headrace.core.segment import Segment
from headrace.snapshot import ModelInfo, Snapshot

class Plane:
    """What the connections of one process share: settings, replicas, models and counters."""

    loop: asyncio.AbstractEventLoop
    segment: Segment
    index: int
    snapshot: Snapshot
    config: Config
    blob_seen: int
    stopping: bool
    max_clients: int
    metrics_page: Callable[[], tuple[str, bytes]] | None
    accepting: Callable[[bool], None] | None

    def __init__(self, segment: Segment, index: int, loop: asyncio.AbstractEventLoop) -> None: ...
    def follow(self) -> bool:
        """Take up the snapshot in force if it is a new one; True if there is one at all."""

    def tick(self) -> None:
        """What is due about every 50 ms: snapshots, timers, the waiting room."""

    def is_live(self, model: ModelInfo) -> bool:
        """Whether a replica that serves it takes requests."""

    def leave(self) -> None:
        """Every connection ends with its next answer; requests are still served."""

    def stop(self) -> None:
        """No new requests: idle clients go, the others close after their answer."""

    def busy(self) -> int:
        """Clients whose request has not ended."""

    def close(self) -> None:
        """Cut whatever is left."""
