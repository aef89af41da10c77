"""When requests are due, in seconds from the start: endless, increasing, seeded."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

# Bursts: this many times the mean rate for a fifth of the time, the rest in between.
BURST_FACTOR = 3.0
BURST_RATIO = 0.2
BURST_CYCLE_S = 10.0


def constant(rate_per_s: float, rng: random.Random) -> Iterator[float]:
    """Evenly spaced."""
    at = 0
    while True:
        yield at / rate_per_s
        at += 1


def poisson(rate_per_s: float, rng: random.Random) -> Iterator[float]:
    """Independent of each other: exponential gaps, as many users make them."""
    at_s = 0.0
    while True:
        at_s += rng.expovariate(rate_per_s)
        yield at_s


def bursts(rate_per_s: float, rng: random.Random) -> Iterator[float]:
    """Poisson with a rate that jumps: 3 × the mean during the first fifth of every 10 s."""
    calm = (1 - BURST_RATIO * BURST_FACTOR) / (1 - BURST_RATIO)

    def rate_at(at_s: float) -> float:
        bursting = at_s % BURST_CYCLE_S < BURST_RATIO * BURST_CYCLE_S
        return rate_per_s * (BURST_FACTOR if bursting else calm)

    return _thinned(rate_at, rate_per_s * BURST_FACTOR, rng)


def ramp(rate_per_s: float, rng: random.Random, duration_s: float) -> Iterator[float]:
    """Poisson with a rate that rises from 0 to twice the mean over the duration, then stays."""

    def rate_at(at_s: float) -> float:
        return 2 * rate_per_s * min(1.0, at_s / duration_s)

    return _thinned(rate_at, 2 * rate_per_s, rng)


def make(name: str, rate_per_s: float, rng: random.Random, duration_s: float) -> Iterator[float]:
    """The arrivals of that name; the duration matters to `ramp` alone."""
    if name == "ramp":
        return ramp(rate_per_s, rng, duration_s)
    return ARRIVALS[name](rate_per_s, rng)


ARRIVALS: dict[str, Callable[[float, random.Random], Iterator[float]]] = {
    "poisson": poisson,
    "constant": constant,
    "bursts": bursts,
}
NAMES = [*ARRIVALS, "ramp"]


def _thinned(
    rate_at: Callable[[float], float], highest_rate: float, rng: random.Random
) -> Iterator[float]:
    """A Poisson process of changing rate, by thinning one of the highest rate (Lewis, Shedler)."""
    at_s = 0.0
    while not math.isinf(at_s):
        at_s += rng.expovariate(highest_rate)
        if rng.random() * highest_rate < rate_at(at_s):
            yield at_s
