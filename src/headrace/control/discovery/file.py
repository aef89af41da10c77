"""Replicas from a file that is read again when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.config import ReplicaConfig
from headrace.config.sources import load_replicas
from headrace.control.discovery.watch import FileWatch
from headrace.errors import ConfigError

log = logging.getLogger("headrace.discovery")

POLL_S = 1.0


async def follow(path: str, publish: Callable[[Sequence[ReplicaConfig]], None]) -> None:
    """Publish the list at once and whenever the file has changed to another good one."""
    watch = FileWatch(path)
    while True:
        if watch.has_changed():
            try:
                publish(load_replicas(Path(path)))
            except ConfigError as error:
                log.error("%s: the last good list stays in force: %s", path, error)
        await asyncio.sleep(POLL_S)
