"""Which of several gateways acts: the one that holds a Lease.

The rules of client-go's leader election, without its trust in the wall clock: the holder stops
acting RENEW_WITHIN_S after it began its last good renewal, and nobody takes the Lease before it
has seen no renewal for LEASE_S, both by monotonic clocks. The difference is what clocks may drift
and what a request may take that was sent in time. A write says which version it replaces, so of
two that try at once one fails. Times in the Lease are for people.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import aiohttp

from headrace.control.autoscale.cluster import CONFLICT, Lease
from headrace.control.autoscale.wishes import Wish, Wishes
from headrace.control.discovery.informer import Refused
from headrace.errors import ConfigError

log = logging.getLogger("headrace.autoscale")

NAME = "headrace-autoscale"
NEW: Lease = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": NAME},
}
LEASE_S = 15
RENEW_WITHIN_S = 10.0
TROUBLES = (Refused, ConfigError, aiohttp.ClientError, OSError, TimeoutError, ValueError)


class Leases(Protocol):
    """Where the Lease is kept; as Cluster has it."""

    async def lease(self, name: str) -> Lease | None:
        """The Lease as it is, or None."""

    async def create_lease(self, lease: Lease) -> None:
        """Make it; Refused with 409 if there is one."""

    async def replace_lease(self, lease: Lease) -> None:
        """Replace it; Refused with 409 if it is another than the one that was read."""


class Leadership:
    """One candidate. `holder` is who leads as far as is known, `trouble` why that is not known."""

    def __init__(self, leases: Leases, clock_s: Callable[[], float] = time.monotonic) -> None:
        pod = os.environ.get("HOSTNAME") or socket.gethostname()
        unique = uuid.uuid4().hex[:12]
        self.identity = f"{pod}_{unique}"
        self.wants: dict[str, int] = {}  # replicas by model
        self.wishes = Wishes(unique)
        self.holder: str | None = None
        self.trouble = ""
        self.clock_s = clock_s
        self._leases = leases
        self._until_s = -math.inf  # acts until then
        self._seen: dict[str, Any] | None = None  # the spec of another one's Lease
        self._seen_since_s = 0.0

    @property
    def remaining_s(self) -> float:
        """How long this gateway may act without another renewal; 0.0: it may not."""
        return max(self._until_s - self.clock_s(), 0.0)

    @property
    def leads(self) -> bool:
        """Whether this gateway may act."""
        return self.remaining_s > 0.0

    async def renew(self) -> None:
        """Take or keep the Lease if that is possible, or else say in it what this gateway wants.

        Call it every few seconds.
        """
        try:
            lease = await self._leases.lease(NAME)
            if lease is None:
                await self._write(self._leases.create_lease, NEW)
            else:
                self.wishes.hear(_annotations(lease), self.clock_s())
                if self._is_free(lease):
                    await self._write(self._leases.replace_lease, lease)
                else:
                    await self._say(lease)
            self._complain("")
        except TROUBLES as error:
            if not _is_conflict(error):
                self._complain(str(error) or "no answer in time")

    async def release(self) -> None:
        """Stop acting at once, and give the Lease back so that another one need not wait."""
        self._until_s = -math.inf
        if self.holder != self.identity:
            return
        for is_last in (False, True):  # a wish of another gateway may come in between
            try:
                await self._give_back()
                self._note_holder("")
                return
            except TROUBLES as error:
                if is_last or not _is_conflict(error):
                    log.warning("autoscale: the Lease is not given back, it runs out: %s", error)
                    return

    async def _give_back(self) -> None:
        lease = await self._leases.lease(NAME)
        if lease is not None and _spec(lease).get("holderIdentity") == self.identity:
            spec = {**_spec(lease), "holderIdentity": "", "renewTime": _timestamp()}
            await self._leases.replace_lease({**lease, "spec": spec})

    def _is_free(self, lease: Lease) -> bool:
        """Whether the Lease is ours, nobody's, or of somebody who has not renewed it in time."""
        spec = _spec(lease)
        holder = spec.get("holderIdentity")
        if not holder or holder == self.identity:
            self._seen = None
            return True
        self._until_s = -math.inf
        self._note_holder(holder)
        if spec != self._seen:
            self._seen, self._seen_since_s = spec, self.clock_s()
        return self.clock_s() - self._seen_since_s >= (spec.get("leaseDurationSeconds") or LEASE_S)

    async def _write(self, write: Callable[[Lease], Any], lease: Lease) -> None:
        spec = dict(_spec(lease))
        if spec.get("holderIdentity") != self.identity:
            spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + bool(spec)
            spec["acquireTime"] = _timestamp()
        spec["holderIdentity"] = self.identity
        spec["leaseDurationSeconds"] = LEASE_S
        spec["renewTime"] = _timestamp()
        began_s = self.clock_s()
        annotations = self.wishes.tidy(_annotations(lease), began_s)
        await write(_annotated({**lease, "spec": spec}, annotations))
        self._until_s = began_s + RENEW_WITHIN_S
        self._note_holder(self.identity)

    async def _say(self, lease: Lease) -> None:
        """Leave a wish for the one that leads; that renews nothing of the Lease."""
        now_s, annotations = self.clock_s(), _annotations(lease)
        if self.wishes.is_due(self.wants, annotations, now_s):
            wish = Wish(self.identity, _timestamp(), self.wants)
            spoken = self.wishes.spoken(annotations, wish, now_s)
            await self._leases.replace_lease(_annotated(lease, spoken))
            self.wishes.said(self.wants, now_s)

    def _note_holder(self, holder: str) -> None:
        if holder and holder != self.holder:
            log.info("autoscale: %s leads", holder)
        self.holder = holder or None

    def _complain(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.warning("autoscale: %s", trouble)
        self.trouble = trouble


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, Refused) and error.status == CONFLICT


def _spec(lease: Lease) -> dict[str, Any]:
    return lease.get("spec") or {}


def _annotations(lease: Lease) -> dict[str, str]:
    return lease["metadata"].get("annotations") or {}


def _annotated(lease: Lease, annotations: dict[str, str]) -> Lease:
    return {**lease, "metadata": {**lease["metadata"], "annotations": annotations}}


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
