"""The processes' word that a replica failed: control then looks at once, not at its next round."""

from __future__ import annotations

import asyncio
import contextlib
import os

GAP_S = 0.02  # at least between two looks: a storm of failures is no storm of wake-ups


class Alarm:
    """Waits on the eventfd of a segment; used by one task of a running loop."""

    def __init__(self, alarm_fd: int) -> None:
        self._fd = alarm_fd
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._hearing: asyncio.TimerHandle | None = None  # while deaf: when that ends
        self._looked_s = 0.0
        self._loop.add_reader(self._fd, self._on_raised)

    async def wait(self, timeout_s: float) -> None:
        """Return after `timeout_s`, or soon after an alarm."""
        self._looked_s = self._loop.time()
        self._waiter = self._loop.create_future()
        ending = self._loop.call_later(timeout_s, self._wake)
        try:
            await self._waiter
        finally:
            ending.cancel()

    def _on_raised(self) -> None:
        """Deaf until the next look, which is due `GAP_S` after the last one."""
        self._loop.remove_reader(self._fd)
        pause_s = self._looked_s + GAP_S - self._loop.time()
        self._hearing = self._loop.call_later(max(pause_s, 0.0), self._listen_and_wake)

    def _listen_and_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        self._loop.add_reader(self._fd, self._on_raised)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Stop listening, for good."""
        if self._hearing is not None:
            self._hearing.cancel()
        self._loop.remove_reader(self._fd)
