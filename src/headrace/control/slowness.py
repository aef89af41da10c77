"""Which replicas are much slower than their fleet, for longer than a moment: a label, no weight.

The router learns each replica's slowness from token gaps and already feeds a slow one less; the
label tells the operator. The lower median is the yardstick, so that of two replicas the faster one
sets it.
"""

import statistics
from collections.abc import Mapping

NS = 10**9
SLOW_RATIO = 3.0
RECOVERED_RATIO = 2.0
SUSTAINED_S = 10.0


class SlownessJudge:
    """Follows the slowness of the replicas of one model."""

    def __init__(self, ratio: float = SLOW_RATIO, sustained_s: float = SUSTAINED_S) -> None:
        self._ratio = ratio
        self._recovered = min(RECOVERED_RATIO, ratio)
        self._sustained_ns = int(sustained_s * NS)
        self._slow: set[str] = set()
        self._since_ns: dict[str, int] = {}  # when the opposite of the present label began to hold

    def update(self, slowness: Mapping[str, float | None], now_ns: int) -> dict[str, str]:
        """Return the reasons of the replicas that are slow, by replica.

        `slowness` is relative (1: as expected) or None where too little is known, which leaves
        the label as it is.
        """
        known = {name: value for name, value in slowness.items() if value is not None and value > 0}
        self._forget(slowness)
        if len(known) > 1:
            typical = statistics.median_low(known.values())
            for name, value in known.items():
                self._follow(name, value / typical, now_ns)
        return dict.fromkeys(self._slow, "slow: tokens come far slower than from its peers")

    def _follow(self, name: str, ratio: float, now_ns: int) -> None:
        changes = ratio < self._recovered if name in self._slow else ratio > self._ratio
        if not changes:
            self._since_ns.pop(name, None)
        elif now_ns - self._since_ns.setdefault(name, now_ns) >= self._sustained_ns:
            self._slow ^= {name}
            del self._since_ns[name]

    def _forget(self, present: Mapping[str, float | None]) -> None:
        self._slow.intersection_update(present)
        for name in self._since_ns.keys() - present.keys():
            del self._since_ns[name]
