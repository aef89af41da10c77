"""The control plane's loop: checks replicas, publishes what changed, serves the admin port."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from headrace import __version__
from headrace import config as configuration
from headrace.config import Config, ReplicaConfig
from headrace.control import admin
from headrace.control.registry import Member, Registry
from headrace.core.segment import Segment
from headrace.errors import ConfigError
from headrace.observe import records
from headrace.observe.access_log import AccessLog
from headrace.observe.history import STEP_S, History
from headrace.snapshot import encode

if TYPE_CHECKING:
    from headrace.observe.tracing import Tracing

log = logging.getLogger("headrace.control")

MAX_MODELS_PAGE_BYTES = 4 << 20
DRAIN_S = 0.1  # between looks at the processes' rings
RECENT = 200  # decisions and state changes kept for the dashboard


def start_tracing(endpoint: str | None) -> Tracing | None:
    """The exporter, if an endpoint is set; its packages are imported only then."""
    if endpoint is None:
        return None
    from headrace.observe.tracing import Tracing

    return Tracing(endpoint, __version__)


class Control:
    """Owns the registry; the only writer of rows and blobs."""

    def __init__(self, config: Config, segment: Segment, args: argparse.Namespace) -> None:
        self.config = config
        self.args = args
        self.segment = segment
        self.registry = Registry(segment)
        self.config_generation = 1
        self.config_errors = 0
        self.process_count = configuration.process_count(config.server)
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.background: set[asyncio.Task[Any]] = set()
        self.session: aiohttp.ClientSession | None = None
        self.runner: web.AppRunner | None = None
        self.history = History()
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self.changes: deque[dict[str, Any]] = deque(maxlen=RECENT)
        target = config.observability.access_log
        self.access_log = AccessLog(target) if target else None
        self.tracing = start_tracing(config.observability.otlp_endpoint)

    async def start(self) -> None:
        """Publish the first snapshot, begin the checks and open the admin port."""
        connector = aiohttp.TCPConnector(limit=0, force_close=False, keepalive_timeout=4)
        self.session = aiohttp.ClientSession(
            connector=connector, auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar()
        )
        for replica in self.config.replicas:
            self._add(replica)
        self.publish()
        self.runner = await admin.start(self)
        self._spawn(self._beat())
        self._spawn(self._take_records())
        self._spawn(self._take_samples())

    async def close(self) -> None:
        """Stop checking and close the admin port."""
        for task in [*self.tasks.values(), *self.background]:
            task.cancel()
        if self.runner is not None:
            await self.runner.cleanup()
        if self.session is not None:
            await self.session.close()
        if self.access_log is not None:
            self.access_log.close()
        if self.tracing is not None:
            self.tracing.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def _beat(self) -> None:
        while True:
            self.segment.beat(time.monotonic_ns())
            await asyncio.sleep(0.1)

    async def _take_records(self) -> None:
        """Move access records from the processes' rings to the log and the dashboard."""
        while True:
            models = {n: name for name, n in self.registry.model_ids.by_name.items()}
            replicas = {m.slot: m.id for m in self.registry.members.values()}
            for process in range(self.segment.processes):
                for data in records.drain(self.segment, process):
                    entry = records.decode(
                        data,
                        models,
                        replicas,
                        self.config.routing.policy,
                    )
                    self.recent.append(entry)
                    if self.access_log is not None:
                        self.access_log.add(entry)
                    if self.tracing is not None:
                        self.tracing.add(entry)
            await asyncio.sleep(DRAIN_S)

    async def _take_samples(self) -> None:
        while True:
            self.history.sample(self)
            await asyncio.sleep(STEP_S)

    def queued(self) -> int:
        """Requests in the gateway's own waiting room."""
        return sum(self.segment.process(i)["queued"] for i in range(self.segment.processes))

    def speed(self, member: Member) -> float | None:
        """Learned speed relative to the fleet's (1: as fast as the mean); None while unknown."""
        return None

    # ---- members

    def _add(self, replica: ReplicaConfig) -> Member:
        member = self.registry.add(replica)
        self.write_row(member)
        self.tasks[member.id] = asyncio.ensure_future(self._watch(member))
        return member

    def _remove(self, member: Member) -> None:
        self.tasks.pop(member.id).cancel()
        self.registry.remove(member)

    def write_row(self, member: Member) -> None:
        """Bring the replica's row up to date, and the count of replicas that serve."""
        admission = self.config.admission
        own = member.config
        self.segment.write_row(
            member.slot,
            eligible=member.takes_traffic,
            generation=member.generation,
            weight=own.weight,
            max_concurrency=own.max_concurrency or admission.max_concurrency,
            max_queue=own.max_queue if own.max_queue is not None else admission.max_queue,
        )
        members = self.registry.members.values()
        self.segment.serving = sum(m.takes_traffic for m in members)

    def publish(self) -> None:
        """Give the processes the snapshot of this moment."""
        self.segment.publish(encode(self.registry.snapshot(self.config)))

    # ---- checks

    async def _watch(self, member: Member) -> None:
        failures = successes = 0
        while True:
            health = self.config.health
            error = await self._check(member)
            if error is None:
                failures, successes = 0, successes + 1
                needed = 1 if member.state == "warming" else health.success_threshold
                if not member.takes_traffic and successes >= needed:
                    self._become(member, "ready", "healthy")
            else:
                failures, successes = failures + 1, 0
                if member.takes_traffic and failures >= health.failure_threshold:
                    self._become(member, "ejected", error)
                elif member.state == "warming":
                    member.reason = error
            await asyncio.sleep(health.interval_s * random.uniform(0.9, 1.1))

    def _become(self, member: Member, state: str, reason: str) -> None:
        log.info("replica %s: %s -> %s (%s)", member.id, member.state, state, reason)
        self.changes.append(
            {
                "time": time.time(),
                "replica": member.id,
                "from": member.state,
                "to": state,
                "reason": reason,
            }
        )
        member.become(state, reason)
        self.write_row(member)

    async def _check(self, member: Member) -> str | None:
        """Health and model list of one replica: None, or what is wrong."""
        assert self.session is not None
        timeout = aiohttp.ClientTimeout(total=self.config.health.timeout_s)
        headers = {}
        if member.config.api_key:
            headers["authorization"] = f"Bearer {member.config.api_key}"
        base = member.url.rstrip("/")
        try:
            async with self.session.get(
                base + self.config.health.path,
                timeout=timeout,
                headers=headers,
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    return f"health check answered {answer.status}"
            if not member.config.models:
                async with self.session.get(
                    base + "/v1/models", timeout=timeout, headers=headers, allow_redirects=False
                ) as answer:
                    if answer.status != 200:
                        return f"model list answered {answer.status}"
                    page = await answer.content.read(MAX_MODELS_PAGE_BYTES)
                    while not answer.content.at_eof() and len(page) < MAX_MODELS_PAGE_BYTES:
                        page += await answer.content.read(MAX_MODELS_PAGE_BYTES - len(page))
                    self._take_models(member, page)
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            return f"health check failed: {type(error).__name__}"
        return None

    def _take_models(self, member: Member, page: bytes) -> None:
        import orjson

        cards = {
            card["id"]: card
            for card in orjson.loads(page)["data"]
            if isinstance(card, dict) and isinstance(card.get("id"), str)
        }
        for card in cards.values():
            previous = member.cards.get(card["id"])
            if previous is not None:  # `created` is the time of asking on vLLM
                card["created"] = previous.get("created", card.get("created"))
        if cards != member.cards:
            member.cards = cards
            self.publish()

    # ---- reload

    def reload_soon(self) -> None:
        """SIGHUP: reload, and only log what is wrong."""
        with contextlib.suppress(ConfigError):
            self.reload()

    def reload(self) -> None:
        """Read the configuration again; a bad one raises ConfigError and changes nothing."""
        try:
            config = configuration.load(self.args, os.environ)
        except ConfigError as error:
            self.config_errors += 1
            log.error("configuration not reloaded: %s", error)
            raise
        self.config = config
        wanted = {replica.id: replica for replica in config.replicas}
        for member in list(self.registry.members.values()):
            if member.id not in wanted:
                self._remove(member)
        for replica in config.replicas:
            known = self.registry.members.get(replica.id)
            if known is None:
                self._add(replica)
            else:
                known.config = replica
                self.write_row(known)
        self.config_generation += 1
        self.publish()
