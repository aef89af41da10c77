"""Reads the engines' metrics pages: one task a replica, figures into the member, restarts told.

An age is counted from when the page was asked for, which is the earliest moment it can be of.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headrace.control import vllm
from headrace.control.checks import auth_headers
from headrace.control.fetch import FetchError
from headrace.control.lanes import Pace
from headrace.control.vllm import EngineSample
from headrace.foreign import foreign_now

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

MAX_PAGE_BYTES = 4 << 20


class Follower:
    """Reads one replica's page again and again."""

    def __init__(self, control: Control, member: Member) -> None:
        self._control = control
        self._member = member
        self._pace = Pace()

    async def turn(self) -> None:
        """Wait for the next turn, then read."""
        await self._pace.wait(self._control.config.control.scrape_interval_s)
        await read_once(self._control, self._member)


async def read_once(control: Control, member: Member) -> None:
    """Fetch and take in one page."""
    engine = member.engine
    timeout_s = control.config.control.scrape_timeout_s
    url = member.config.metrics_url or member.url + "/metrics"
    headers = auth_headers(member) if member.config.metrics_url is None else {}
    async with control.lanes.enter(not engine.trouble):
        asked_at_ns = time.monotonic_ns()
        before = control.segment.evidence(member.slot)
        try:
            page = await control.fetcher.get(url, timeout_s, MAX_PAGE_BYTES, headers)
        except FetchError as error:
            engine.trouble = error.detail
            return
    engine.trouble = ""
    sample = vllm.read_page(page)
    control.tally.bad_samples["engine"] += sample.bad
    if sample.is_empty:
        engine.trouble = "no figures of an engine on the page"
        return
    after = control.segment.evidence(member.slot)
    take(control, member, sample, asked_at_ns, (before[6:8], after[6:8]))


def take(
    control: Control,
    member: Member,
    sample: EngineSample,
    asked_at_ns: int,
    ours: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    """Put a sample into force; `ours` are (sequences, decoding) before and after the fetch."""
    engine = member.engine
    news = engine.tracker.update(sample)
    engine.sample, engine.hit_ratio = sample, news.hit_ratio
    engine.scraped_at_ns = asked_at_ns
    if news.restarted:
        engine.foreign.reset()
        control.take_restart(member)
    if sample.running is not None and sample.waiting is not None:
        our_seqs = max(ours[0][0], ours[1][0])
        our_decoding = min(ours[0][1], ours[1][1])
        load = foreign_now(sample.running, sample.waiting, our_seqs, our_decoding)
        smoothing_s = control.config.routing.foreign_smoothing_s
        engine.foreign.update(load, asked_at_ns, smoothing_s)
    control.refresh(member)
