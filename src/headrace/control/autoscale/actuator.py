"""Carries plans out: patches the `scale` subresource of the workload behind a model.

Of several gateways one acts, the holder of the Lease. Growing is one patch. Shrinking goes by one
replica: mark its pod, which drains it in every gateway and makes it the first to go
(`controller.kubernetes.io/pod-deletion-cost`), wait until nothing runs there, and only then take
one off the count. A need that comes back in the meantime takes the mark away.

Who goes and how far that has got stands in the marks of the pods, so that a gateway that takes over
the Lease goes on with the same one. What is remembered here are only times to wait.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.config import AutoscaleModel
from headrace.control.autoscale import victims
from headrace.control.autoscale.cluster import COST, DRAIN, REMAINING, Cluster, Pod, Scale
from headrace.control.autoscale.leadership import TROUBLES, Leadership

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

log = logging.getLogger("headrace.autoscale")

TURN_S = 2.0
JITTER = 0.2
FIRST_TO_GO = "-1000"  # pods without the annotation cost 0; the cheapest goes first
SCALED_DOWN = "scaled down"
SETTLE_S = 10.0  # nothing runs there for so long: also what gateways sent that saw the mark late
GONE_WITHIN_S = 120.0  # after the count fell; a marked pod that is there still was spared


Phase = tuple[str, str, bool]  # workload, pod, whether the count still includes the pod


class NotLeading(Exception):
    """The Lease was lost on the way to a change."""


@dataclass
class Wait:
    """Since when a marked pod has been looked at, and since when nothing runs there."""

    since_s: float
    quiet_since_s: float | None = None


class Actuator:
    """One pod at a time goes, for each model that has a `workload`."""

    def __init__(self, control: Control, api: Any = None) -> None:
        self.control = control
        self.cluster = Cluster(lambda: control.config.discovery.kubernetes, api)
        self.leadership = Leadership(self.cluster)
        self._began_s = self.leadership.clock_s()
        self._waits: dict[Phase, Wait] = {}

    async def compete(self) -> None:
        """Take part in the election, then wait."""
        await self.elect()
        await asyncio.sleep(TURN_S * random.uniform(1, 1 + JITTER))

    async def elect(self) -> None:
        """Try for the Lease while there is anything to act on."""
        models = [entry.model for entry in self.control.config.autoscale.models if entry.workload]
        if models:
            plans = self.control.autoscale.plans
            self.leadership.wants = {m: plans[m].desired for m in models if m in plans}
            await self.leadership.renew()
        else:
            await self.leadership.release()

    async def turn(self) -> None:
        """Look after all workloads, then wait."""
        await self.look()
        await asyncio.sleep(TURN_S)

    async def look(self) -> None:
        """Bring every workload one step closer to the largest plan, if this gateway leads."""
        for entry in self.control.config.autoscale.models:
            desired = self._desired(entry)
            if entry.workload is None or desired is None or not self.leadership.leads:
                continue
            try:
                async with asyncio.timeout(self.leadership.remaining_s):
                    await self.step(entry.workload, desired)
            except (*TROUBLES, NotLeading) as error:
                log.warning("autoscale: %s: %s", entry.workload, str(error) or "no answer in time")

    def _desired(self, entry: AutoscaleModel) -> int | None:
        """What the gateway asks for that wants most; None while nobody says anything."""
        others = self.leadership.wishes.most(self.leadership.clock_s())
        plan = self.control.autoscale.plans.get(entry.model)
        counts = [plan.desired] if plan is not None else []
        if entry.model in others:
            counts.append(min(others[entry.model], entry.max_replicas))
        return max(counts, default=None)

    async def close(self) -> None:
        """Give the Lease back and close the connection to the API server."""
        await self.leadership.release()
        await self.cluster.close()

    def document(self) -> dict[str, Any]:
        """Who acts, as GET /autoscale says it."""
        lead = self.leadership
        return {
            "leader": lead.leads,
            "holder": lead.holder,
            "lease_error": lead.trouble or None,
            "others_desire": lead.wishes.most(lead.clock_s()),
        }

    async def step(self, workload: str, desired: int) -> None:
        """One step for one workload; raises NotLeading and what the calls of Cluster raise."""
        scale = await self.cluster.scale(workload)
        if desired > scale.replicas:
            await self._scale(workload, scale, desired)
        pods = await self.cluster.pods(scale.selector)
        marked = [pod for pod in pods if pod.remaining is not None and not pod.is_terminating]
        leaving = [pod for pod in marked if (pod.remaining or 0) >= scale.replicas]
        self._forget_waits(workload, marked)
        for pod in leaving:
            await self._see_off(workload, pod)
        victim = None
        if desired < scale.replicas and not leaving:
            victim = self._victim(workload, pods)
        for pod in marked:
            if pod not in leaving and pod != victim:
                log.info("autoscale: %s is needed after all", pod.name)
                await self._spare(pod)
        if victim is not None:
            await self._send_off(workload, scale, victim)

    async def _send_off(self, workload: str, scale: Scale, victim: Pod) -> None:
        """Mark the victim, or shrink if it is marked and nothing runs there."""
        remaining = scale.replicas - 1
        if victim.remaining != remaining:
            log.info("autoscale: %s drains, %s has one too many", victim.name, workload)
            await self._mark(victim, remaining)
        elif self._is_settled(workload, victim):
            await self._scale(workload, scale, remaining)

    async def _see_off(self, workload: str, pod: Pod) -> None:
        """Wait for a pod to disappear; if another one went instead, it serves again."""
        wait = self._wait((workload, pod.name, False))
        if self.leadership.clock_s() - wait.since_s > GONE_WITHIN_S:
            log.warning("autoscale: %s is still there; it serves again", pod.name)
            await self._spare(pod)

    # ---- which one, and when

    def _victim(self, workload: str, pods: list[Pod]) -> Pod | None:
        """The pod to go: the one that has been chosen already, or else a choice if it is time."""
        if workload.startswith("statefulset/"):
            chosen = _last_ordinal(pods)
        else:
            staying = [pod for pod in pods if not pod.is_terminating]
            marked = [pod for pod in staying if pod.remaining is not None]
            chosen = marked[0] if marked else self._cheapest(workload, staying)
        if chosen is None or chosen.remaining is not None:
            return chosen
        # A gateway that has just begun knows too little of the need to take anything away.
        watched_s = self.leadership.clock_s() - self._began_s
        return chosen if watched_s >= self.control.config.autoscale.down_window_s else None

    def _cheapest(self, workload: str, pods: list[Pod]) -> Pod | None:
        by_replica = {m.id: pod for pod in pods for m in self._members(pod) if m.is_wanted}
        members = [self.control.registry.members[replica] for replica in by_replica]
        order = victims.order(self.control, members)
        if not order:
            log.warning("autoscale: no pod of %s is known as a replica; none is taken", workload)
        return by_replica[order[0]] if order else None

    def _is_settled(self, workload: str, pod: Pod) -> bool:
        """Whether nothing has run there for SETTLE_S."""
        wait, now_s = self._wait((workload, pod.name, True)), self.leadership.clock_s()
        if not self._is_quiet(pod, now_s - wait.since_s):
            wait.quiet_since_s = None
            return False
        if wait.quiet_since_s is None:
            wait.quiet_since_s = now_s
        return now_s - wait.quiet_since_s >= SETTLE_S

    def _is_quiet(self, pod: Pod, drained_s: float) -> bool:
        """Whether nothing runs there, ours or, by its engine's gauges, of other gateways.

        Where the gauges say nothing, the time for a drain must do.
        """
        members, segment = self._members(pod), self.control.segment
        if any(m.state != "drained" or segment.requests(m.slot) for m in members):
            return False
        rows = [segment.row(m.slot) or {} for m in members]
        gauges = [row.get(name, -1) for row in rows for name in ("running", "waiting")]
        if not gauges or min(gauges) < 0:
            return drained_s >= self.control.config.server.drain_timeout_s
        return not any(gauges)

    def _wait(self, phase: Phase) -> Wait:
        return self._waits.setdefault(phase, Wait(self.leadership.clock_s()))

    def _forget_waits(self, workload: str, marked: list[Pod]) -> None:
        names = {pod.name for pod in marked}
        for phase in [p for p in self._waits if p[0] == workload and p[1] not in names]:
            del self._waits[phase]

    def _members(self, pod: Pod) -> list[Member]:
        key = pod.namespace, pod.name
        return [m for m in self.control.registry.members.values() if m.pod == key]

    # ---- changes

    async def _mark(self, pod: Pod, remaining: int) -> None:
        """Let every gateway drain it; a drain that somebody asked for by hand keeps its reason."""
        mark: dict[str, str | None] = {COST: FIRST_TO_GO, REMAINING: str(remaining)}
        if pod.drain is None:
            mark[DRAIN] = SCALED_DOWN
        self._check_lead()
        await self.cluster.annotate(pod, mark)

    async def _spare(self, pod: Pod) -> None:
        mark: dict[str, str | None] = {COST: None, REMAINING: None}
        if pod.drain == SCALED_DOWN:
            mark[DRAIN] = None
        self._check_lead()
        await self.cluster.annotate(pod, mark)

    async def _scale(self, workload: str, seen: Scale, replicas: int) -> None:
        self._check_lead()
        await self.cluster.set_scale(workload, seen, replicas)
        log.info("autoscale: %s: %d replicas", workload, replicas)

    def _check_lead(self) -> None:
        if not self.leadership.leads:
            raise NotLeading(f"{self.leadership.holder} leads")


def _last_ordinal(pods: list[Pod]) -> Pod | None:
    """The pod that a StatefulSet deletes next: the highest ordinal, whatever it costs.

    None while that one is being replaced, for it comes back; one that was sent off does not.
    """
    staying = [pod for pod in pods if not (pod.is_terminating and pod.remaining is not None)]
    last = max(staying, key=lambda pod: pod.ordinal, default=None)
    return None if last is None or last.is_terminating else last
