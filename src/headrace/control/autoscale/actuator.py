"""Carries plans out: patches the `scale` subresource of the workload behind a model.

Growing is one patch. Shrinking goes by one replica: choose it, drain it, mark its pod as the one to
go (`controller.kubernetes.io/pod-deletion-cost`), wait until nothing runs there, and only then take
one off the count. A need that comes back in the meantime ends the drain.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import orjson

from headrace.control.autoscale import victims
from headrace.control.discovery import kubernetes
from headrace.control.discovery.informer import Refused
from headrace.control.states import Cause
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

log = logging.getLogger("headrace.autoscale")

TURN_S = 2.0
COST = "controller.kubernetes.io/pod-deletion-cost"
FIRST_TO_GO = "-1000"  # pods without the annotation cost 0; the cheapest goes first
DRAIN_S = 86_400.0  # shrinking is never in a hurry: the last stream decides
GONE_WITHIN_S = 120.0  # after the count fell; a victim that is there still was spared
MERGE_PATCH = "application/merge-patch+json"


class Victim(NamedTuple):
    """A replica on its way out; `shrunk_at_s` 0.0: the count still includes it."""

    replica: str
    shrunk_at_s: float = 0.0


class Actuator:
    """One victim at a time for each model that has a `workload`."""

    def __init__(self, control: Control, api: Any = None) -> None:
        self.control = control
        self.victims: dict[str, Victim] = {}
        self._api = api
        self._is_own_api = api is None

    async def turn(self) -> None:
        """Bring every workload one step closer to its plan, then wait."""
        for entry in self.control.config.autoscale.models:
            plan = self.control.autoscale.plans.get(entry.model)
            if entry.workload is None or plan is None:
                continue
            try:
                await self.step(entry.model, entry.workload, plan.desired, time.time())
            except (Refused, ConfigError, aiohttp.ClientError, OSError, TimeoutError) as error:
                log.warning("autoscale: %s: %s", entry.workload, error)
        await asyncio.sleep(TURN_S)

    async def close(self) -> None:
        """Close the connection to the API server."""
        if self._is_own_api and self._api is not None:
            await self._api.close()

    async def step(self, model: str, workload: str, desired: int, now_s: float) -> None:
        """One step for one model; raises Refused and aiohttp's errors."""
        current = await self._replicas(workload)
        victim = self.victims.get(model)
        if victim is not None and victim.shrunk_at_s:
            self._see_off(model, victim, now_s)
        elif desired >= current:
            if victim is not None:
                await self._spare(model, victim.replica)
            if desired > current:
                await self._scale(workload, desired)
        elif victim is None:
            await self._choose(model, workload)
        elif self._is_empty(victim.replica):
            await self._scale(workload, current - 1)
            self.victims[model] = victim._replace(shrunk_at_s=now_s)

    def _see_off(self, model: str, victim: Victim, now_s: float) -> None:
        """Wait for the victim to disappear; if another pod went instead, it serves again."""
        member = self.control.registry.members.get(victim.replica)
        if member is None or not member.is_wanted:
            del self.victims[model]
        elif now_s - victim.shrunk_at_s > GONE_WITHIN_S:
            log.warning("autoscale: %s is still there; it serves again", victim.replica)
            del self.victims[model]
            self._undrain(member)

    async def _choose(self, model: str, workload: str) -> None:
        members = self.control.registry.known_models(self.control.config).get(model, [])
        candidates = [m for m in members if m.pod is not None and m.is_wanted]
        chosen = self._last_ordinal(candidates) if workload.startswith("statefulset/") else None
        if chosen is None:
            order = victims.order(self.control, candidates)
            chosen = self.control.registry.members[order[0]] if order else None
        if chosen is None:
            log.warning("autoscale: no replica of %s is known by its pod; none is taken", model)
            return
        log.info("autoscale: %s drains, %s has one too many", chosen.id, workload)
        self.victims[model] = Victim(chosen.id)
        chosen.health.drain(Cause.ADMIN, "scaled down", time.monotonic_ns(), DRAIN_S)
        self.control.refresh(chosen)
        await self._set_cost(chosen, FIRST_TO_GO)

    def _last_ordinal(self, members: list[Member]) -> Member | None:
        """The pod that a StatefulSet will delete: the highest ordinal, whatever it costs."""
        found = [
            (int(ordinal), m)
            for m in members
            if m.pod is not None and (ordinal := m.pod[1].rpartition("-")[2]).isdigit()
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def _is_empty(self, replica: str) -> bool:
        """Whether nothing runs there, ours or, as far as its engine says, of others."""
        member = self.control.registry.members.get(replica)
        if member is None:
            return True
        row = self.control.segment.row(member.slot) or {}
        foreign = max(row.get("running", 0), 0) + max(row.get("waiting", 0), 0)
        ours = self.control.segment.requests(member.slot)
        return member.state == "drained" and ours == 0 and foreign == 0

    async def _spare(self, model: str, replica: str) -> None:
        del self.victims[model]
        member = self.control.registry.members.get(replica)
        if member is not None:
            log.info("autoscale: %s is needed after all", replica)
            self._undrain(member)
            await self._set_cost(member, None)

    def _undrain(self, member: Member) -> None:
        member.health.undrain(time.monotonic_ns())
        self.control.refresh(member)

    # ---- the API server

    async def _replicas(self, workload: str) -> int:
        answer = await self._scale_call("read", "get", workload)
        return int((answer.get("spec") or {}).get("replicas") or 0)

    async def _scale(self, workload: str, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        await self._scale_call("patch", "patch", workload, body=body, _content_type=MERGE_PATCH)
        log.info("autoscale: %s: %d replicas", workload, replicas)

    async def _scale_call(self, action: str, verb: str, workload: str, **more: Any) -> Any:
        from kubernetes_asyncio import client

        kind, _, name = workload.partition("/")
        function = {"statefulset": "stateful_set", "deployment": "deployment"}[kind]
        call = getattr(
            client.AppsV1Api(await self._client()), f"{action}_namespaced_{function}_scale"
        )
        return await _ask(call, verb, f"{kind}s/scale", name, self._namespace(), **more)

    async def _set_cost(self, member: Member, cost: str | None) -> None:
        """Mark the pod; if that fails the drain goes on, and Kubernetes chooses by itself."""
        from kubernetes_asyncio import client

        if member.pod is None:
            return
        namespace, name = member.pod
        call = client.CoreV1Api(await self._client()).patch_namespaced_pod
        body = {"metadata": {"annotations": {COST: cost}}}
        try:
            await _ask(call, "patch", "pods", name, namespace, body=body, _content_type=MERGE_PATCH)
        except (Refused, aiohttp.ClientError, OSError) as error:
            log.warning("autoscale: pod %s is not marked: %s", name, error)

    def _namespace(self) -> str:
        return kubernetes.namespace_of(self.control.config.discovery.kubernetes)

    async def _client(self) -> Any:
        if self._api is None:
            self._api = await kubernetes.connect()
        return self._api


async def _ask(call: Any, verb: str, resource: str, name: str, namespace: str, **more: Any) -> Any:
    answer = await call(name, namespace, **more, _preload_content=False)
    try:
        text = await answer.read()
        if answer.status >= 400:
            raise Refused(answer.status, verb, resource, text[:200].decode(errors="replace"))
        return orjson.loads(text)
    finally:
        answer.close()
