"""The load that others put on a replica: what its engine reports beyond what is ours.

Engine gauges lag and jump, so the first figure is taken as it is and later ones are smoothed:
unsmoothed, several gateways chase each other's load (docs/routing.md has the study).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Foreign:
    """Sequences of others on a replica."""

    seqs: float = 0.0  # running or waiting
    waiting: float = 0.0


def foreign_now(running: float, waiting: float, our_seqs: int, our_decoding: int) -> Foreign:
    """Return what is not ours of a reading; `our_*` are the highest of ours around the scrape.

    Ours without a first token may be waiting or prefilling; counting them all as waiting errs to
    the side of less foreign load, as does everything here: never below 0.
    """
    seqs = max(0.0, running + waiting - our_seqs)
    ours_waiting = max(0, our_seqs - our_decoding)
    return Foreign(seqs, min(seqs, max(0.0, waiting - ours_waiting)))


class ForeignLoad:
    """The smoothed load of one replica."""

    def __init__(self) -> None:
        self.value: Foreign | None = None
        self._at_ns = 0

    def update(self, now: Foreign, now_ns: int, smoothing_s: float) -> Foreign:
        """Take a reading; `smoothing_s` is the time constant, 0 for none."""
        before = self.value
        if before is None or smoothing_s <= 0:
            self.value = now
        else:
            keep = math.exp(-max(0, now_ns - self._at_ns) / (smoothing_s * 1e9))
            self.value = Foreign(
                now.seqs + keep * (before.seqs - now.seqs),
                now.waiting + keep * (before.waiting - now.waiting),
            )
        self._at_ns = now_ns
        return self.value

    def reset(self) -> None:
        """Forget it: the engine is another one."""
        self.value = None


def neutral(known: list[Foreign]) -> Foreign:
    """Return what stands for figures that are unknown: the mean of those that are known."""
    if not known:
        return Foreign()
    count = len(known)
    return Foreign(sum(f.seqs for f in known) / count, sum(f.waiting for f in known) / count)
