"""The vocabulary of health, and the table of what follows from what.

health.py turns evidence into signals; a pair of mode and signal that is not in TRANSITIONS does
nothing.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """The `health.*` settings; seconds, counts and ratios as CONTRACT and config define them."""

    interval_s: float = 5.0
    timeout_s: float = 5.0
    failure_threshold: int = 3
    success_threshold: int = 2
    probe_interval_s: float = 30.0
    probe_timeout_s: float = 10.0
    probe_slow_s: float = 3.0
    passive_failures: int = 5
    eject_s: float = 10.0
    slow_start_s: float = 10.0
    max_ejected_ratio: float = 0.5


class State(StrEnum):
    """What the outside sees."""

    WARMING = "warming"
    READY = "ready"
    DEGRADED = "degraded"
    DRAINING = "draining"
    DRAINED = "drained"
    EJECTED = "ejected"


class Mode(Enum):
    """What the machine is in; SERVING and HALF_OPEN are both shown as ready or degraded."""

    WARMING = State.WARMING
    SERVING = State.READY
    HALF_OPEN = State.DEGRADED
    DRAINING = State.DRAINING
    DRAINED = State.DRAINED
    EJECTED = State.EJECTED


class Cause(Enum):
    """Whose evidence took the replica out."""

    HEALTH = "health"
    PROBE = "probe"
    TRAFFIC = "traffic"
    LEAVING = "leaving"  # the engine said that it is shutting down
    HARDWARE = "hardware"
    ADMIN = "admin"
    HELD = "held"  # its own entry says so: the configuration, or an annotation of its pod
    REMOVED = "removed"  # from the configuration or by discovery


class Signal(Enum):
    """What evidence amounts to."""

    PROVEN = "proven"
    DOWN = "down"
    TRIPPED = "tripped"
    COOLED = "cooled"
    LEAVING = "leaving"
    DRAIN = "drain"
    EMPTY = "empty"
    UNDRAIN = "undrain"
    RESUME = "resume"  # undrained before it was drained, and well


class Health(Enum):
    """How a health check ended."""

    OK = "ok"
    SLOW = "no answer in time"
    FAILED = "failed"
    REFUSED = "connection refused"


class Probe(Enum):
    """How a one-token inference ended."""

    OK = "ok"
    SLOW = "slow"
    FAILED = "failed"
    NEUTRAL = "neutral"  # refused for load, or 4xx: says nothing


TRANSITIONS = {
    (Mode.WARMING, Signal.PROVEN): Mode.SERVING,
    (Mode.WARMING, Signal.DOWN): Mode.EJECTED,
    (Mode.WARMING, Signal.DRAIN): Mode.DRAINING,
    (Mode.SERVING, Signal.DOWN): Mode.EJECTED,
    (Mode.SERVING, Signal.TRIPPED): Mode.EJECTED,
    (Mode.SERVING, Signal.LEAVING): Mode.DRAINING,
    (Mode.SERVING, Signal.DRAIN): Mode.DRAINING,
    (Mode.HALF_OPEN, Signal.PROVEN): Mode.SERVING,
    (Mode.HALF_OPEN, Signal.DOWN): Mode.EJECTED,
    (Mode.HALF_OPEN, Signal.TRIPPED): Mode.EJECTED,
    (Mode.HALF_OPEN, Signal.LEAVING): Mode.DRAINING,
    (Mode.HALF_OPEN, Signal.DRAIN): Mode.DRAINING,
    (Mode.EJECTED, Signal.PROVEN): Mode.SERVING,
    (Mode.EJECTED, Signal.COOLED): Mode.HALF_OPEN,
    (Mode.EJECTED, Signal.DRAIN): Mode.DRAINING,
    (Mode.DRAINING, Signal.EMPTY): Mode.DRAINED,
    (Mode.DRAINING, Signal.RESUME): Mode.SERVING,
    (Mode.DRAINING, Signal.UNDRAIN): Mode.WARMING,
    (Mode.DRAINED, Signal.UNDRAIN): Mode.WARMING,
    # The next three only of replicas that left by themselves.
    (Mode.DRAINING, Signal.DOWN): Mode.EJECTED,
    (Mode.DRAINED, Signal.DOWN): Mode.EJECTED,
    (Mode.DRAINING, Signal.COOLED): Mode.HALF_OPEN,
    (Mode.DRAINED, Signal.COOLED): Mode.HALF_OPEN,
}

IN_ROTATION = frozenset({Mode.SERVING, Mode.HALF_OPEN})
OUT_BY_DRAIN = frozenset({Mode.DRAINING, Mode.DRAINED})


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the processes saw of a replica since the last time; counts of attempts.

    Neutral outcomes (4xx, client hang-ups, refusals for load) are in none of the counts.
    """

    ok: int = 0
    failed: int = 0  # failures that count, the refused ones included
    refused: int = 0  # fresh connections
    leaving: int = 0  # answers that say the engine is shutting down
    trailing: int = 0  # failures since the last success, over all processes
    in_flight: int = 0
    progress_ns: int = 0  # when a body byte last came; 0: never
    busy_since_ns: int = 0  # when in_flight last rose from 0
    pending_s: float = 0.0  # expected prefill time of what waits for a first token


@dataclass(frozen=True, slots=True)
class View:
    """What is published of a replica at one moment."""

    state: State
    reason: str
    since_ns: int
    eligible: bool
    trickle: bool  # at most one request in flight
    weight: float  # factor on the configured weight
    ramp: float  # 0 … 1, slow start; 1: none
    wants_health: bool  # out of turn
    wants_probe: bool
