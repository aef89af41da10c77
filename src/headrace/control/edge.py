"""The edge of every control loop: one bad turn is logged and counted, and the loop goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from headrace.control.tally import Tally

log = logging.getLogger("headrace.control")

PAUSE_S = 1.0  # after a turn that failed, so that a broken part does not spin


async def repeat(tally: Tally, part: str, turn: Callable[[], Awaitable[None]]) -> NoReturn:
    """Take turns until cancelled; a turn waits for its own time."""
    while True:
        try:
            await turn()
        except Exception:
            tally.errors[part] += 1
            log.exception("control: a turn of %s failed", part)
            await asyncio.sleep(PAUSE_S)
