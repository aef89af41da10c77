"""The waiting room: requests that no replica has room for, until one has or their time is over.

Also those for a model on demand that has no replica at all: what waits here is the autoscaler's
reason to start one.
"""

from __future__ import annotations

from collections import deque
from typing import Any

PRIORITIES = 4


class WaitingRoom:
    """First come first served within a priority; a waiting request holds no lease."""

    def __init__(self, plane: Any) -> None:
        self.plane = plane
        self.lines: tuple[deque[Any], ...] = tuple(deque() for _ in range(PRIORITIES))
        self.woken = False

    def take(self, exchange: Any, now_ns: int) -> bool:
        """Let a request wait for room; False when there is no place for it."""
        return self.plane.may_wait() and self._seat(exchange, now_ns, is_held=False)

    def hold(self, exchange: Any, now_ns: int) -> bool:
        """Let a request wait for a replica to come up; False when there is no place for it."""
        has_place = self.plane.may_hold(exchange.kept_bytes)
        return has_place and self._seat(exchange, now_ns, is_held=True)

    def _seat(self, exchange: Any, now_ns: int, *, is_held: bool) -> bool:
        exchange.wait(now_ns, is_held)
        self.lines[exchange.priority].append(exchange)
        return True

    def leave(self, exchange: Any) -> None:
        """It does not wait any more."""
        self.lines[exchange.priority].remove(exchange)
        exchange.stop_waiting()

    def wake_soon(self) -> None:
        """A place may be free: look once this callback is over."""
        if not self.woken and any(self.lines):
            self.woken = True
            self.plane.loop.call_soon(self.wake)

    def wake(self) -> None:
        """Route as many as can be, best priority first; a model without room blocks only itself."""
        self.woken = False
        full: set[int] = set()
        for line in self.lines:
            for exchange in list(line):
                if exchange.model_id in full:
                    continue
                if exchange.try_waiting():
                    line.remove(exchange)
                else:
                    full.add(exchange.model_id)
