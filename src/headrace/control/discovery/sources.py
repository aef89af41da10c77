"""Runs the sources that the configuration names, one task each, and merges what they say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headrace.config import Config, ReplicaConfig
from headrace.control.discovery import dns, file, kubernetes
from headrace.control.discovery.merge import DNS, FILE, KUBERNETES, Wanted
from headrace.control.edge import repeat
from headrace.control.tally import Tally
from headrace.errors import ConfigError

log = logging.getLogger("headrace.discovery")

RETRY_S = 10.0  # for a source that cannot begin

Publish = Callable[[Sequence[ReplicaConfig]], None]
Follow = Callable[[Publish], Coroutine[Any, Any, None]]


class Sources:
    """The wanted replicas of all sources; `on_change` is called when the merged list may differ."""

    def __init__(self, on_change: Callable[[], None], tally: Tally) -> None:
        self.wanted = Wanted()
        self._on_change = on_change
        self._tally = tally
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._entries: dict[str, object] = {}  # the settings that each task was started with

    def configure(self, config: Config) -> None:
        """Take a configuration: its own list at once, its sources as they answer."""
        self.wanted.start_over(config.replicas)
        follows: dict[str, tuple[object, Follow]] = {}
        path = config.discovery.file.path
        if path is not None:
            follows[FILE] = (path, lambda publish: file.follow(path, publish))
        for entry in config.discovery.dns:
            name = f"{DNS}:{entry.name}:{entry.port or ''}"
            follows[name] = (entry, lambda publish, entry=entry: dns.follow(entry, publish))  # type: ignore[misc]
        cluster = config.discovery.kubernetes
        if cluster.enabled:
            follows[KUBERNETES] = (cluster, lambda publish: kubernetes.follow(cluster, publish))
        self._restart(follows)

    def _restart(self, follows: dict[str, tuple[object, Follow]]) -> None:
        """Start what is new, stop what is gone, and leave alone what has not changed."""
        for name in list(self._tasks):
            if name not in follows or follows[name][0] != self._entries[name]:
                self._tasks.pop(name).cancel()
                if name not in follows:
                    self.wanted.set_list(name, [])
        for name, (entry, follow) in follows.items():
            if name not in self._tasks:
                self._entries[name] = entry
                turn = self._turn(follow, self._publisher(name))
                self._tasks[name] = asyncio.ensure_future(repeat(self._tally, "discovery", turn))

    def _turn(self, follow: Follow, publish: Publish) -> Callable[[], Coroutine[Any, Any, None]]:
        """One life of a source; it ends only by a failure, and then begins again."""

        async def turn() -> None:
            try:
                await follow(publish)
            except ConfigError as error:
                log.error("%s; next try in %g s", error, RETRY_S)
                await asyncio.sleep(RETRY_S)

        return turn

    def _publisher(self, name: str) -> Publish:
        def publish(replicas: Sequence[ReplicaConfig]) -> None:
            self.wanted.set_list(name, replicas)
            self._on_change()

        return publish

    def close(self) -> None:
        """Stop all tasks."""
        for task in self._tasks.values():
            task.cancel()
