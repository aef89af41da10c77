"""Ten times a second, and at once after failures: evidence in, verdicts out, checks and probes.

Every replica has at most one health check and one probe under way, and the fleet at most a few
probes, so that judging never becomes load.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING

from headrace.config import Config
from headrace.control import checks, membership, probes
from headrace.control.alarm import Alarm
from headrace.control.states import HealthSettings, Probe, Traffic

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

TICK_S = 0.1
SLOW_TICKS = 5  # between looks at what changes by the second
SWEEP_S = 1.0  # between looks at a part of the prefix table
JITTER = 0.1
RECOVERY_S = 1.0  # the longest wait between the good checks that readmit


def settings_of(config: Config) -> HealthSettings:
    """The settings of the machines out of a configuration."""
    health = config.health
    names = HealthSettings.__dataclass_fields__
    return HealthSettings(**{name: getattr(health, name) for name in names})


class Judge:
    """The rounds of judging."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._swept_at_s = 0.0
        self._ticks = 0
        self._alarm = Alarm(control.segment.alarm_fd)

    async def turn(self) -> None:
        """One round, and the pause until the next."""
        segment = self._control.segment
        segment.beat(time.monotonic_ns())
        tick(self._control, is_slow=self._ticks % SLOW_TICKS == 0)
        self._ticks += 1
        now_s = time.monotonic()
        if now_s - self._swept_at_s >= SWEEP_S:
            self._swept_at_s = now_s
            segment.sweep_prefixes()
        await self._alarm.wait(TICK_S)

    def close(self) -> None:
        """Listen to no alarm any more."""
        self._alarm.close()


def tick(control: Control, *, is_slow: bool) -> None:
    """One round; `is_slow`: with what changes by the second."""
    now_ns = time.monotonic_ns()
    members = list(control.registry.members.values())
    control.fleet.take_traffic(control.evidence.look(members, now_ns), now_ns)
    if is_slow:
        label_slow(control, now_ns)
        control.rows.renew_neutral()
    for member in members:
        view = member.health.view(now_ns)
        control.refresh(member, view)
        control.look_after(member, view)
    membership.sweep(control)
    control.registry.reclaim()


def label_slow(control: Control, now_ns: int) -> None:
    """Compare the learned slowness of the replicas of each model."""
    known = {name: cell.slowness for name, cell in control.evidence.cells.items()}
    reasons = control.slowness.update(known, now_ns)
    for member in control.registry.members.values():
        member.health.set_warning("slow", reasons.get(member.id, ""), now_ns)


class Checks:
    """The health checks and probes of one replica."""

    def __init__(self, control: Control, member: Member) -> None:
        self._control = control
        self._member = member
        self._hurry = asyncio.Event()
        self._probe: asyncio.Task[None] | None = None

    async def turn(self) -> None:
        """Check the health path, then wait for the interval, or less if the machine wants it."""
        await self._check()
        self._hurry.clear()
        wait_s = self._control.config.health.interval_s
        if self._member.health.is_recovering:
            wait_s = min(wait_s, RECOVERY_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s * random.uniform(1 - JITTER, 1 + JITTER)):
                await self._hurry.wait()

    async def _check(self) -> None:
        control, member = self._control, self._member
        answer, detail, cards = await checks.check(control.fetcher, member, control.config.health)
        if cards is not None and not member.config.models:
            control.take_models(member, cards)
        member.health.take_health(answer, time.monotonic_ns(), detail)
        control.refresh(member)

    def hurry(self) -> None:
        """Check now."""
        self._hurry.set()

    def probe(self) -> None:
        """Begin a probe, unless one is under way."""
        if self._probe is None or self._probe.done():
            self._probe = self._control.spawn(self._run_probe())

    async def _run_probe(self) -> None:
        control, member = self._control, self._member
        async with control.probe_places:
            started_ns = time.monotonic_ns()
            outcome = await probes.ask(control.fetcher, member, control.config.health)
        now_ns = time.monotonic_ns()
        if outcome.is_leaving:
            member.health.take_traffic(Traffic(leaving=1, in_flight=1), now_ns)
        member.health.take_probe(outcome.probe, started_ns, now_ns, outcome.detail)
        if outcome.probe in (Probe.OK, Probe.SLOW):
            control.tally.record_probe(member.id, outcome.kind, outcome.seconds)
        control.refresh(member)

    def close(self) -> None:
        """Stop what is under way."""
        if self._probe is not None:
            self._probe.cancel()
