"""From load to a number of replicas: the queueing rule, the reaction, the brakes on shrinking."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """What bounds the answer for one model; ratios, counts and seconds."""

    headroom_ratio: float = 0.2
    utilization_ceiling: float = 0.8
    queue_per_replica: float = 1.0  # mean requests waiting in the gateway for each replica
    minimum: int = 1
    maximum: int = 1024
    down_window_s: float = 600.0  # nothing shrinks before the need was lower for so long
    down_step: int = 1  # replicas at once


class Situation(NamedTuple):
    """One model at one moment; loads in busy replicas."""

    load: float  # in flight and waiting
    queued: float  # requests waiting in the gateway
    replicas: int  # that take traffic or are starting
    forecast: float | None  # load to be ready for; None: unknown


class Desire(NamedTuple):
    """The answer, and why."""

    replicas: int
    reason: str  # load, forecast, queue, utilization, hold, minimum, maximum


def needed(load: float, limits: Limits) -> int:
    """Replicas for a load that is known: it must not exceed the ceiling of their utilisation.

    Waiting time grows with 1/(1 - utilisation); 0.8 is where it has grown fivefold.
    """
    return max(0, math.ceil(load / limits.utilization_ceiling - 1e-9))


def provisioned(forecast: float, limits: Limits) -> int:
    """Replicas for a load that is only expected: queueing and forecast error each want a margin.

    The two are independent, so their margins add as squares: 0.25 above the load for a ceiling of
    0.8 and 0.2 of head-room make 0.32.
    """
    margin = math.hypot(limits.headroom_ratio, 1.0 / limits.utilization_ceiling - 1.0)
    return max(0, math.ceil(forecast * (1.0 + margin) - 1e-9))


def want(now: Situation, limits: Limits) -> Desire:
    """What the moment asks for, before any brake: the largest of load, forecast and reaction."""
    best = Desire(needed(now.load, limits), "load")
    if now.forecast is not None:
        best = max(best, Desire(provisioned(now.forecast, limits), "forecast"), key=lambda d: d[0])
    if now.replicas > 0:
        step = math.ceil(now.replicas * (1 + limits.headroom_ratio))
        if now.queued / now.replicas > limits.queue_per_replica:
            best = max(best, Desire(step, "queue"), key=lambda d: d[0])
        elif now.load / now.replicas > limits.utilization_ceiling:
            best = max(best, Desire(step, "utilization"), key=lambda d: d[0])
    return best


def bounded(desire: Desire, limits: Limits) -> Desire:
    """Within minimum and maximum."""
    if desire.replicas < limits.minimum:
        return Desire(limits.minimum, "minimum")
    if desire.replicas > limits.maximum:
        return Desire(limits.maximum, "maximum")
    return desire


class Brakes:
    """Growing is immediate; shrinking waits for a whole window of less, and goes by steps."""

    def __init__(self, now_s: float) -> None:
        self.since_s = now_s
        self.wanted: list[tuple[float, int]] = []

    def apply(self, desire: Desire, current: int, limits: Limits, now_s: float) -> Desire:
        """The desire after the brakes; `current` is what was asked for last."""
        self.wanted = [(t, n) for t, n in self.wanted if t > now_s - limits.down_window_s]
        self.wanted.append((now_s, desire.replicas))
        if desire.replicas >= current:
            return desire
        highest = max(n for _, n in self.wanted)
        if highest >= current or now_s - self.since_s < limits.down_window_s:
            return Desire(current, "hold")
        return Desire(max(highest, current - limits.down_step), desire.reason)
