"""Reads the DCGM exporters: one task a page, which may belong to several replicas of a host."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.control import dcgm
from headrace.control.dcgm import GpuSample
from headrace.control.edge import repeat
from headrace.control.fetch import FetchError
from headrace.control.gpu_judge import Finding
from headrace.control.hardware import Action
from headrace.control.lanes import Pace
from headrace.control.registry import Gpu, Member
from headrace.control.states import Cause

if TYPE_CHECKING:
    from headrace.control.loop import Control

MAX_PAGE_BYTES = 16 << 20
TIMEOUT_S = 3.0  # exporters answer from memory; older ones take a second over 16 GPUs


class Exporters:
    """Keeps one task for each page that some replica names."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def update(self) -> None:
        """Start and stop tasks to match the members."""
        wanted = {m.config.dcgm_url for m in self._control.registry.members.values()}
        for url in wanted - self._tasks.keys():
            if url is not None:
                follower = Follower(self._control, url)
                self._tasks[url] = asyncio.ensure_future(
                    repeat(self._control.tally, "dcgm", follower.turn)
                )
        for url in self._tasks.keys() - wanted:
            self._tasks.pop(url).cancel()

    def close(self) -> None:
        """Stop all tasks."""
        for task in self._tasks.values():
            task.cancel()


class Follower:
    """Reads one page again and again."""

    def __init__(self, control: Control, url: str) -> None:
        self._control = control
        self._url = url
        self._pace = Pace()
        self._is_well = True

    async def turn(self) -> None:
        """Wait for the next turn, then read; a page that cannot be had changes nothing."""
        control = self._control
        await self._pace.wait(control.config.hardware.interval_s)
        page = None
        async with control.lanes.enter(self._is_well):
            with contextlib.suppress(FetchError):
                page = await control.fetcher.get(self._url, TIMEOUT_S, MAX_PAGE_BYTES)
        self._is_well = page is not None
        if page is not None:
            self._take(page)

    def _take(self, page: bytes) -> None:
        gpus, bad = dcgm.read_page(page)
        self._control.tally.bad_samples["dcgm"] += bad
        for member in self._control.registry.members.values():
            if member.config.dcgm_url == self._url:
                own = dcgm.select(gpus, member.config.gpus, member.pod)
                take_gpus(self._control, member, own)


def take_gpus(control: Control, member: Member, gpus: Sequence[GpuSample]) -> None:
    """Publish a replica's GPU figures and act on what they mean."""
    now_ns = time.monotonic_ns()
    findings = member.gpu_judge.update(gpus, now_ns)
    known = {gpu.name: gpu for gpu in member.gpus}
    for sample in gpus:
        shown = to_gpu(sample, known.get(sample.index))
        known[shown.name] = shown
    on_page = {gpu.index for gpu in gpus}
    member.gpus = [gpu for name, gpu in known.items() if name in on_page]
    act(control, member, findings, now_ns)


def to_gpu(sample: GpuSample, last: Gpu | None) -> Gpu:
    """Return the published figures; one that could not be read keeps its last good value."""
    nvlink = sample.nvlink_mb_per_s
    now = Gpu(
        name=sample.index or sample.uuid,
        util=sample.activity,
        dram_active=sample.dram_active,
        temp_celsius=sample.temp_celsius,
        xid=None if sample.xid is None else int(sample.xid),
        ecc_dbe=None if sample.dbe_total is None else int(sample.dbe_total),
        nvlink_bytes_per_s=None if nvlink is None else nvlink * 1e6,
    )
    if last is None:
        return now
    read = {name: value for name, value in now._asdict().items() if value is not None}
    return last._replace(**read)


def act(control: Control, member: Member, findings: Sequence[Finding], now_ns: int) -> None:
    """Do what the findings ask for; the reasons name the GPU and the figure."""
    warnings = []
    for found in findings:
        if found.action is Action.DEGRADE:
            warnings.append(found.reason)
            continue
        control.log_finding(member, found)
        if found.action is Action.DRAIN:
            timeout_s = control.config.server.drain_timeout_s
            member.health.drain(Cause.HARDWARE, found.reason, now_ns, timeout_s)
        elif found.action is Action.PROBE:
            member.health.suspect(found.reason)
    member.health.set_warning("hardware", "; ".join(warnings), now_ns)
    control.refresh(member)
