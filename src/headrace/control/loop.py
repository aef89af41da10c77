"""The control plane: discovers, scrapes, probes, judges and publishes, and serves the admin port.

It never touches a data-plane loop: what it finds out goes into rows and snapshots of the segment.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from aiohttp import web

from headrace import config as configuration
from headrace.config import Config, ReplicaConfig, UpstreamTls
from headrace.control import admin, checks, engines, judging, membership
from headrace.control.autoscale.actuator import Actuator
from headrace.control.autoscale.service import Autoscale
from headrace.control.discovery.sources import Sources
from headrace.control.edge import repeat
from headrace.control.evidence import Evidence
from headrace.control.explain import Explainer
from headrace.control.exporters import Exporters
from headrace.control.fetch import Fetcher
from headrace.control.fleet_health import FleetHealth
from headrace.control.gpu_judge import Finding
from headrace.control.kv.readings import Readings
from headrace.control.kv.subscriber import Subscriber
from headrace.control.lanes import Lanes
from headrace.control.registry import Member, Registry
from headrace.control.reload import Reloader
from headrace.control.rows import Rows
from headrace.control.slowness import SlownessJudge
from headrace.control.states import View
from headrace.control.tally import Tally
from headrace.control.upward import Upward
from headrace.core.segment import Segment
from headrace.errors import ConfigError
from headrace.observe.history import History
from headrace.observe.page import MetricsPage
from headrace.snapshot import encode
from headrace.tls import ClientTls

log = logging.getLogger("headrace.control")

RECENT = 200  # decisions and state changes kept for the dashboard
MAX_PROBES = 4  # at once, over the fleet


class Control:
    """Owns the members; the only writer of rows and snapshots."""

    def __init__(self, config: Config, segment: Segment, args: argparse.Namespace) -> None:
        self.config = config
        self.args = args
        self.segment = segment
        self.registry = Registry(segment)
        self.process_count = configuration.process_count(config.server)
        self.fleet = FleetHealth(judging.settings_of(config))
        self.evidence = Evidence(segment)
        self.rows = Rows(self)
        self.lanes = Lanes()
        self.readings = Readings(self)
        self.tally = Tally()
        self.slowness = SlownessJudge()
        self.sources = Sources(lambda: membership.apply(self), self.tally)
        self.exporters = Exporters(self)
        self.explainer = Explainer(self)
        self.reloader = Reloader(self)
        self.upward = Upward(self)
        self.autoscale = Autoscale(self)
        self.actuator = Actuator(self)
        self.history = History()
        self.metrics_page = MetricsPage(self)
        self.recent: deque[bytes] = deque(maxlen=RECENT)  # lines of the access log
        self.changes: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self.probe_places = asyncio.Semaphore(MAX_PROBES)
        self.fetcher: Fetcher
        self.upstream_tls = ClientTls()
        self.judge: judging.Judge
        self.admin_listeners: list[socket.socket] = []
        self._planning: asyncio.Task[None] | None = None
        self._acting: list[asyncio.Task[None]] = []
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}  # by replica id
        self._checks: dict[str, judging.Checks] = {}
        self._background: set[asyncio.Task[Any]] = set()
        self._runner: web.AppRunner | None = None
        self._is_started = False

    # ------------------------------------------------------------------ life

    async def start(self, admin_listeners: Sequence[socket.socket] = ()) -> None:
        """Publish the first snapshot, begin all loops and open the admin port.

        `admin_listeners`: those of a gateway that this one takes over from.
        """
        server = self.config.server
        self.admin_listeners = list(admin_listeners) or admin.listen(
            server.admin_host, server.admin_port
        )
        self.fetcher = Fetcher()
        self.take_tls()
        self.sources.configure(self.config)
        membership.apply(self)
        self.publish()
        self._is_started = True
        self.judge = judging.Judge(self)
        self._runner = await admin.start(self, self.admin_listeners)
        for part, turn in (
            ("judging", self.judge.turn),
            ("records", self.upward.turn),
            ("history", self.upward.sample),
            ("reload", self.reloader.watch),
        ):
            self.spawn(repeat(self.tally, part, turn))
        self._planning = self.spawn(repeat(self.tally, "autoscale", self.autoscale.turn))
        self.act()

    def take_tls(self) -> None:
        """Ask https replicas with the certificates that are in force."""
        settings = self.config.server.upstream_tls
        is_set = settings != UpstreamTls()
        self.fetcher.tls = self.upstream_tls.context(settings) if is_set else None

    async def leave(self) -> None:
        """A successor has the admin port: what acts on the outside ends, watching goes on."""
        if self._planning is not None:
            self._planning.cancel()
        runner, self._runner = self._runner, None
        await asyncio.gather(self.stop_acting(), *([runner.cleanup()] if runner else []))

    def act(self) -> None:
        """Carry the plans out, while this gateway leads."""
        self._acting = [
            self.spawn(repeat(self.tally, "leadership", self.actuator.compete)),
            self.spawn(repeat(self.tally, "actuator", self.actuator.turn)),
        ]

    async def stop_acting(self) -> None:
        """Change nothing outside any more, and let another gateway lead."""
        tasks, self._acting = self._acting, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.actuator.close()

    async def close(self) -> None:
        """Stop all loops and close the admin port."""
        self.sources.close()
        self.exporters.close()
        tasks = [task for own in self._tasks.values() for task in own]
        for task in [*tasks, *self._background]:
            task.cancel()
        self.judge.close()
        if self._runner is not None:
            await self._runner.cleanup()
        await self.fetcher.close()
        self.upward.close()
        self.autoscale.close()
        await self.stop_acting()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in the background until it ends or control closes."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # ------------------------------------------------------------------ members

    def join(self, replica: ReplicaConfig) -> Member | None:
        """Add a replica and begin to watch it; None if there is no room."""
        health = self.fleet.add(replica.id, time.monotonic_ns(), is_new=self._is_started)
        try:
            member = self.registry.add(replica, health)
        except ConfigError as error:
            self.fleet.remove(replica.id)
            log.error("%s is left out: %s", replica.id, error)
            return None
        self.fleet.set_models(member.id, member.cards)
        own = judging.Checks(self, member)
        follower = engines.Follower(self, member)
        self._checks[member.id] = own
        self._tasks[member.id] = [
            asyncio.ensure_future(repeat(self.tally, "health", own.turn)),
            asyncio.ensure_future(repeat(self.tally, "engine", follower.turn)),
        ]
        if (replica.kv_events_port or self.config.control.kv_events_port) is not None:
            subscriber = Subscriber(self, member)
            task = asyncio.ensure_future(repeat(self.tally, "kv_events", subscriber.turn))
            task.add_done_callback(lambda _: subscriber.close())
            self._tasks[member.id].append(task)
        self.refresh(member)
        return member

    def forget(self, member: Member, *, cut: bool = False) -> None:
        """Remove a replica; what still runs there ends by itself, or with `cut` at once."""
        for task in self._tasks.pop(member.id):
            task.cancel()
        self._checks.pop(member.id).close()
        self.registry.remove(member, cut=cut)
        self.fleet.remove(member.id)
        self.rows.forget(member.slot)
        self.tally.forget(member.id)
        self.exporters.update()
        self.publish()

    def take_models(self, member: Member, cards: dict[str, dict[str, Any]]) -> None:
        """Take over the models that a replica lists."""
        checks.keep_known(cards, member.cards)
        if cards != member.cards:
            if cards.keys() != member.cards.keys():
                member.probe_kind = ""
            member.cards = cards
            self.fleet.set_models(member.id, cards)
            self.publish()

    def take_restart(self, member: Member) -> None:
        """The engine behind a replica is a new process: its cache is empty, its past is void."""
        member.health.take_restart(time.monotonic_ns())
        log.info("replica %s: its engine has restarted", member.id)
        self.take_empty_cache(member)

    def take_empty_cache(self, member: Member) -> None:
        """What the prefix table holds of a replica is void: a new generation."""
        self.registry.restarted(member)
        self.refresh(member)
        self.publish()

    # ------------------------------------------------------------------ state

    def refresh(self, member: Member, view: View | None = None) -> None:
        """Bring what is published of a replica up to date with its health, or a view just taken."""
        if view is None:
            view = member.health.view(time.monotonic_ns())
        if view.state.value != member.state:
            self._note_change(member, view.state.value, view.reason)
        member.reason = view.reason
        self.rows.write(member, view)

    def look_after(self, member: Member, view: View) -> None:
        """Begin the check and the probe that the replica's health asks for."""
        if view.wants_health:
            self._checks[member.id].hurry()
        if view.wants_probe:
            self._checks[member.id].probe()

    def _note_change(self, member: Member, state: str, reason: str) -> None:
        log.info("replica %s: %s -> %s (%s)", member.id, member.state, state, reason or "healthy")
        change = {"time": time.time(), "replica": member.id, "from": member.state, "to": state}
        self.changes.append({**change, "reason": reason})
        member.state = state
        member.since = time.time()

    def log_finding(self, member: Member, found: Finding) -> None:
        """Tell the operator what the hardware said."""
        log.warning("replica %s: %s (%s)", member.id, found.reason, found.action.value)

    def publish(self) -> None:
        """Give the processes the snapshot of this moment."""
        generation = self.segment.publish(encode(self.registry.snapshot(self.config)))
        for member in self.registry.members.values():
            if member.cards.keys() != member.published_models:
                member.published_models = set(member.cards)
                member.published_in, member.seen_by_all = generation, False

    # ------------------------------------------------------------------ figures for others

    @property
    def config_generation(self) -> int:
        """Counts configurations put in force."""
        return self.reloader.generation

    @property
    def config_errors(self) -> int:
        """Counts reloads refused."""
        return self.reloader.errors

    def queued(self) -> int:
        """Requests in the gateway's own waiting room."""
        return sum(self.segment.process(i)["queued"] for i in range(self.segment.processes))

    def speed(self, member: Member) -> float | None:
        """Learned speed relative to what is usual (1); None while unknown."""
        cell = self.evidence.cells.get(member.id)
        slowness = None if cell is None else cell.slowness
        return 1 / slowness if slowness else None

    def reload(self) -> None:
        """Read the configuration again; a bad one raises ConfigError and changes nothing."""
        self.reloader.reload()

    def reload_soon(self) -> None:
        """SIGHUP: reload, and only log what is wrong."""
        self.reloader.reload_quietly()
