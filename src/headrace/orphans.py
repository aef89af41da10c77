"""What the first process of a container owes: it waits for children that others left behind.

A process whose parent ends becomes a child of PID 1 (a shell of `kubectl exec` that started
something in the background); while nobody waits for it, it stays in the process table.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection

INTERVAL_S = 1.0


def reap(own: Collection[int]) -> int:
    """Wait for ended children whose process ids are not in `own`; returns how many there were."""
    count = 0
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return count
        if ended is None or ended.si_pid in own:  # the event loop waits for its own
            return count
        os.waitpid(ended.si_pid, os.WNOHANG)
        count += 1


async def reap_forever(own: Callable[[], Collection[int]]) -> None:
    """`reap` each second, all but the processes that `own` names at that moment."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        reap(own())
