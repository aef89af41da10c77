"""Runs a scaler for every model from what the segment says, and keeps their history."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.config import Autoscale as Settings
from headrace.control.autoscale import backfill, victims
from headrace.control.autoscale.policy import Limits
from headrace.control.autoscale.profile import bin_of
from headrace.control.autoscale.scaler import Plan, Scaler
from headrace.control.autoscale.store import Store
from headrace.control.fetch import FetchError

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

log = logging.getLogger("headrace.autoscale")

TURN_S = 1.0
FILL_AGAIN_S = 300.0  # after Prometheus did not answer
STARTING = ("warming",)


def limits_of(settings: Settings, model: str) -> Limits:
    """The limits in force for a model: its own entry, or the general ones."""
    own = next((entry for entry in settings.models if entry.model == model), settings)
    return Limits(
        headroom_ratio=settings.headroom_ratio,
        utilization_ceiling=settings.utilization_ceiling,
        queue_per_replica=settings.queue_per_replica,
        minimum=own.min_replicas,
        maximum=own.max_replicas,
        down_window_s=settings.down_window_s,
        down_step=settings.down_step,
    )


class Autoscale:
    """Plans by model; read by the metrics page, the admin port and an actuator."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.plans: dict[str, Plan] = {}
        self._scalers: dict[str, Scaler] = {}
        self._store = Store(control.config.autoscale.history_path)
        self._warming: dict[str, float] = {}  # replica id -> since when
        self._filled: set[str] = set()  # models whose past Prometheus has been asked for
        self._next_fill_s = 0.0

    async def turn(self) -> None:
        """Look at every model once, then wait."""
        self.look(time.time())
        await self.fill_gaps(time.time())
        await asyncio.sleep(TURN_S)

    def close(self) -> None:
        """Close the history."""
        self._store.close()

    def look(self, now_s: float) -> None:
        """Renew all plans."""
        known = self._known()
        self._learn_starts(now_s)
        for model, members in known.items():
            scaler = self._scaler(model, now_s)
            load, queued = self._load(model, members)
            finished = scaler.observe(now_s, load)
            if finished is not None:
                self._store.add(model, {finished[0]: finished[1]})
            count = sum(m.takes_traffic or m.state in STARTING for m in members)
            self.plans[model] = scaler.decide(now_s, load, queued, count)
        for model in self.plans.keys() - known.keys():
            del self.plans[model]

    async def fill_gaps(self, now_s: float) -> None:
        """Ask Prometheus once for the past of every model that has come."""
        base_url = self.control.config.autoscale.prometheus_url
        if base_url is None or now_s < self._next_fill_s:
            return
        for model in self._scalers.keys() - self._filled:
            try:
                for span in backfill.spans(bin_of(now_s)):
                    rated = self._rated(self._known().get(model, []))
                    found = await backfill.fetch(self.control.fetcher, base_url, model, rated, span)
                    self._store.add(model, self._scalers[model].take_history(found))
            except FetchError as error:
                log.warning("autoscale.prometheus_url: %s; asked again later", error.detail)
                self._next_fill_s = now_s + FILL_AGAIN_S
                return
            self._filled.add(model)

    def _scaler(self, model: str, now_s: float) -> Scaler:
        settings = self.control.config.autoscale
        scaler = self._scalers.get(model)
        if scaler is None:
            scaler = self._scalers[model] = Scaler(
                limits_of(settings, model),
                now_s,
                startup_s=settings.startup_s,
                lead_s=settings.lead_minutes * 60,
                history=self._store.load(model),
            )
        scaler.limits = limits_of(settings, model)
        return scaler

    def _load(self, model: str, members: list[Member]) -> tuple[float, float]:
        """(load in busy replicas, requests waiting here), over all processes.

        What other gateways have running counts as well, so that each of several asks for the whole.
        """
        segment, registry = self.control.segment, self.control.registry
        load = 0.0
        for member in members:
            row = segment.row(member.slot)
            if row is None:
                continue
            requests = segment.pair(registry.pair(member, model))["requests"]
            requests += row["foreign_seqs"] / max(len(member.cards), 1)
            load += requests / row["max_concurrency"]
        queued = float(segment.model(registry.model_ids.of(model))["queued"])
        return load + queued / self._rated(members), queued

    def _known(self) -> dict[str, list[Member]]:
        return self.control.registry.known_models(self.control.config)

    def _rated(self, members: list[Member]) -> float:
        """Requests in flight that count as one busy replica; the mean where replicas differ, what a
        new one would take where there are none.
        """
        rows = [self.control.segment.row(member.slot) for member in members]
        rated = [row["max_concurrency"] for row in rows if row is not None]
        usual = float(self.control.config.admission.max_concurrency)
        return sum(rated) / len(rated) if rated else usual

    def _learn_starts(self, now_s: float) -> None:
        """Note how long a replica that has just begun to serve was warming."""
        for member in self.control.registry.members.values():
            if member.state in STARTING:
                self._warming.setdefault(member.id, now_s)
            elif (since := self._warming.pop(member.id, None)) and member.takes_traffic:
                for model in member.cards:
                    if model in self._scalers:
                        self._scalers[model].starts.add(now_s - since)
        here = self.control.registry.members
        self._warming = {k: v for k, v in self._warming.items() if k in here}

    def document(self) -> dict[str, Any]:
        """What GET /autoscale shows: every plan, and who would go first if one is too many."""
        models = {}
        for model, plan in self.plans.items():
            members = self._known().get(model, [])
            models[model] = {
                **msgspec.to_builtins(plan),
                "first_to_go": victims.order(self.control, members)[:3],
            }
        return {"models": models, "history_moved_to": self._store.moved_to}
