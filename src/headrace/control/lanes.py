"""Bounded parallelism in which a target that hangs never delays one that does not.

Fetches of targets that answered last time share one wide lane; those that failed share a narrow
one of their own, so that any number of hanging targets only ever wait for each other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

WELL, ILL = 256, 16
JITTER = 0.1


class Lanes:
    """Two semaphores."""

    def __init__(self, well: int = WELL, ill: int = ILL) -> None:
        self._well = asyncio.Semaphore(well)
        self._ill = asyncio.Semaphore(ill)

    @asynccontextmanager
    async def enter(self, was_well: bool) -> AsyncIterator[None]:
        """Hold a place in the lane that a target's last fetch has earned."""
        async with self._well if was_well else self._ill:
            yield


class Pace:
    """Times of a repeated job: every `interval_s` on average, with jitter, from a random start.

    A job that took longer than its interval is late, not doubled.
    """

    def __init__(self) -> None:
        self._next_s: float | None = None

    async def wait(self, interval_s: float) -> None:
        """Sleep until the next turn; the first comes within one interval."""
        now = asyncio.get_running_loop().time()
        if self._next_s is None:
            self._next_s = now + random.uniform(0, min(interval_s, 1.0))
        else:
            step = interval_s * random.uniform(1 - JITTER, 1 + JITTER)
            self._next_s = max(now, self._next_s + step)
        await asyncio.sleep(self._next_s - now)
