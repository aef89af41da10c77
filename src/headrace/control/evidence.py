"""What the processes saw of each replica since the last look, out of the cells of the segment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.control.registry import Member
from headrace.control.states import Traffic
from headrace.core.segment import Segment


class Cell(NamedTuple):
    """The sums over all processes that health looks at, as Segment.evidence gives them."""

    succeeded: int
    failed: int  # all that count as failures of the replica
    refused: int  # connections, among the failed
    leaving: int
    streak: int
    requests: int
    seqs: int
    decoding: int
    progress_ns: int
    busy_since_ns: int
    pending_s: float
    speed_known: float  # 0: nothing, 1 and more: enough
    learned_slowness: float

    @property
    def slowness(self) -> float | None:
        """How slow beside what its group is used to; None while too little is known."""
        return self.learned_slowness if self.speed_known >= KNOWN else None


KNOWN = 0.5  # of the weight of an exponential mean: from there on a speed is worth a label


class Evidence:
    """Remembers the counters of the last look."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._last: dict[int, tuple[int, Cell]] = {}  # slot → (generation of the slot, cell)
        self.cells: dict[str, Cell] = {}  # by replica id, of the last look

    def look(self, members: Iterable[Member], now_ns: int) -> dict[str, Traffic]:
        """Return what is new of each replica; of one that is new itself, nothing yet."""
        seen = {}
        cells = {}
        for member in members:
            cell = Cell(*self._segment.evidence(member.slot, member.generation, now_ns))
            cells[member.id] = cell
            known = self._last.get(member.slot)
            last = known[1] if known is not None and known[0] == member.first_generation else cell
            self._last[member.slot] = (member.first_generation, cell)
            seen[member.id] = difference(last, cell)
        self.cells = cells
        return seen


def difference(last: Cell, now: Cell) -> Traffic:
    """Return the traffic between two looks."""
    return Traffic(
        ok=max(0, now.succeeded - last.succeeded),
        failed=max(0, now.failed - last.failed),
        refused=max(0, now.refused - last.refused),
        leaving=max(0, now.leaving - last.leaving),
        trailing=now.streak,
        in_flight=now.requests,
        progress_ns=now.progress_ns,
        busy_since_ns=now.busy_since_ns,
        pending_s=now.pending_s,
    )
