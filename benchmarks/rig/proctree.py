"""CPU time and memory of a process and all its descendants, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cpu:
    """CPU seconds used, split as the kernel splits them."""

    user_s: float
    system_s: float

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s

    def __sub__(self, earlier: Cpu) -> Cpu:
        return Cpu(self.user_s - earlier.user_s, self.system_s - earlier.system_s)


def tree(root_pid: int) -> list[int]:
    """The process and its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat_fields(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [root_pid]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


def cpu(root_pid: int) -> Cpu:
    """CPU seconds of the whole tree so far, dead and reaped children included."""
    ticks = [0, 0]
    for pid in tree(root_pid):
        if fields := _stat_fields(pid):
            utime, stime, dead_utime, dead_stime = map(int, fields[11:15])
            ticks[0] += utime + dead_utime
            ticks[1] += stime + dead_stime
    return Cpu(ticks[0] * TICK_S, ticks[1] * TICK_S)


def memory_bytes(root_pid: int) -> int:
    """Memory of the whole tree, with shared pages counted once (the sum of Pss)."""
    total = 0
    for pid in tree(root_pid):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += (
            1024 * int(rollup.split("\nPss:", 1)[1].split(None, 1)[0]) if "\nPss:" in rollup else 0
        )
    return total


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on: the command before it may hold spaces."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
