"""Brings the rows of the segment up to date: what processes may know of a replica, in numbers."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from headrace.control.states import View
from headrace.foreign import Foreign, neutral

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

BEAT_LOST_NS = 2 * 10**9  # a process that has not beaten for so long is not waited for


class Rows:
    """Writes rows, and only when something in them has changed."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._written: dict[int, tuple[object, ...]] = {}  # by slot: what the row was made of
        self._neutral: dict[str, Foreign] = {}  # by model
        self._serving: set[int] = set()

    def write(self, member: Member, view: View) -> None:
        """Write the replica's row as of now."""
        now_ns = time.monotonic_ns()
        control = self._control
        own, admission = member.config, control.config.admission
        engine = member.engine
        is_fresh = engine.is_fresh(now_ns, control.config.control.stale_after_s)
        sample = engine.sample
        foreign = engine.foreign.value if is_fresh and engine.foreign.value else None
        if foreign is None:
            foreign = self._neutral_foreign(member)
        is_eligible = view.eligible and self._is_known_to_all(member, now_ns)
        made_of = (
            (is_eligible, view.trickle, view.weight, view.ramp, is_fresh),
            (member.generation, member.is_followed),
            (own, admission, sample, foreign, engine.hit_ratio, engine.scraped_at_ns),
        )
        if self._written.get(member.slot) == made_of:
            return
        self._written[member.slot] = made_of
        control.segment.write_row(
            member.slot,
            eligible=is_eligible,
            trickle=view.trickle,
            followed=member.is_followed,
            generation=member.generation,
            weight=own.weight * view.weight,
            ramp=view.ramp,
            max_concurrency=own.max_concurrency or admission.max_concurrency,
            max_queue=own.max_queue if own.max_queue is not None else admission.max_queue,
            running=count(sample.running) if is_fresh else -1,
            waiting=count(sample.waiting) if is_fresh else -1,
            foreign_seqs=foreign.seqs,
            foreign_waiting=foreign.waiting,
            kv_usage=ratio(sample.kv_usage) if is_fresh else math.nan,
            hit_ratio=ratio(engine.hit_ratio) if is_fresh else math.nan,
            kv_capacity_tokens=int(sample.kv_capacity_tokens or 0),
            scraped_at_ns=engine.scraped_at_ns,
        )
        self._count_serving(member.slot, is_eligible)

    def forget(self, slot: int) -> None:
        """The slot is somebody else's from here on."""
        self._written.pop(slot, None)
        self._count_serving(slot, False)

    def _count_serving(self, slot: int, is_serving: bool) -> None:
        """Renew the number of replicas that take traffic, which is what readiness says."""
        if is_serving:
            self._serving.add(slot)
        else:
            self._serving.discard(slot)
        self._control.segment.serving = len(self._serving)

    def renew_neutral(self) -> None:
        """Compute anew, once a tick, what replicas with unknown load count as."""
        now_ns = time.monotonic_ns()
        stale_after_s = self._control.config.control.stale_after_s
        known: dict[str, list[Foreign]] = {}
        for member in self._control.registry.members.values():
            foreign = member.engine.foreign_at(now_ns, stale_after_s)
            if foreign is not None:
                for model in member.cards:
                    known.setdefault(model, []).append(foreign)
        self._neutral = {model: neutral(loads) for model, loads in known.items()}

    def _neutral_foreign(self, member: Member) -> Foreign:
        return self._neutral.get(next(iter(member.cards), ""), Foreign())

    def _is_known_to_all(self, member: Member, now_ns: int) -> bool:
        """True when every living process has taken up the snapshot with the replica's models.

        Rows are seen at once and snapshots within 50 ms: without waiting, a replica that comes
        back as another model could get a request for its former one.
        """
        if member.seen_by_all:
            return True
        segment = self._control.segment
        for number in range(segment.processes):
            process = segment.process(number)
            is_alive = process["pid"] and now_ns - process["beat_ns"] < BEAT_LOST_NS
            if is_alive and process["blob_seen"] < member.published_in:
                return False
        member.seen_by_all = True
        return True


def count(value: float | None) -> int:
    """A gauge as the row has it: -1 is unknown."""
    return -1 if value is None else int(value)


def ratio(value: float | None) -> float:
    """A ratio as the row has it: NaN is unknown."""
    return math.nan if value is None else value
