"""The scaler of one model: takes in loads, keeps bins, forecasts, decides."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

import msgspec

from headrace.control.autoscale.policy import Brakes, Desire, Limits, Situation, bounded, want
from headrace.control.autoscale.profile import (
    BIN_S,
    BINS_PER_DAY,
    WEEKS,
    bin_of,
    usual_load,
)
from headrace.control.autoscale.trend import deviation

TREND_BINS = 24  # two hours
KEPT_BINS = (WEEKS + 1) * 7 * BINS_PER_DAY


class StartTimes:
    """How long replicas take until they serve: a high quantile of the last starts."""

    def __init__(self, default_s: float, kept: int = 20) -> None:
        self.default_s = default_s
        self.seen: deque[float] = deque(maxlen=kept)

    def add(self, seconds: float) -> None:
        """One observed start."""
        if seconds > 0:
            self.seen.append(seconds)

    @property
    def expected_s(self) -> float:
        """The third quartile of what was seen, or the default before three starts."""
        if len(self.seen) < 3:
            return self.default_s
        return statistics.quantiles(self.seen, n=4)[2]


class Plan(msgspec.Struct, frozen=True):
    """A decision and what it stands on, as GET /autoscale shows it. Loads in busy replicas."""

    desired: int
    reason: str
    wanted: int  # before the brakes
    wanted_reason: str
    load: float
    queued: float
    replicas: int
    utilization: float
    forecast: float | None
    forecast_at_s: float
    startup_s: float

    @property
    def expected(self) -> float:
        """The forecast; the present load while there is no past to forecast from."""
        return self.load if self.forecast is None else self.forecast


class Scaler:
    """Bins of five minutes in, numbers of replicas out. `history` maps bins to mean loads."""

    def __init__(
        self,
        limits: Limits,
        now_s: float,
        *,
        startup_s: float = 180.0,
        lead_s: float = 1800.0,
        history: dict[int, float] | None = None,
    ) -> None:
        self.limits = limits
        self.lead_s = lead_s
        self.starts = StartTimes(startup_s)
        self.history = history if history is not None else {}
        self.brakes = Brakes(now_s)
        self.desired: int | None = None
        self._bin = bin_of(now_s)
        self._sum = 0.0
        self._count = 0
        self._usual: dict[int, float | None] = {}
        self._forecast: tuple[tuple[int, int], float | None] | None = None

    def observe(self, now_s: float, load: float) -> tuple[int, float] | None:
        """Take in a load; returns a bin that is complete, with its mean, when one is."""
        current, finished = bin_of(now_s), None
        if current != self._bin:
            if self._count:
                finished = (self._bin, self._sum / self._count)
                self.history[finished[0]] = finished[1]
                self.history.pop(self._bin - KEPT_BINS, None)
            self._bin, self._sum, self._count = current, 0.0, 0
            self._usual = {b: v for b, v in self._usual.items() if b >= current - TREND_BINS}
        self._sum += load
        self._count += 1
        return finished

    def take_history(self, bins: Mapping[int, float]) -> dict[int, float]:
        """Take in past bins that are missing here; returns those that were."""
        missing = {b: load for b, load in bins.items() if b not in self.history and b < self._bin}
        self.history.update(missing)
        self._usual.clear()
        self._forecast = None
        return missing

    def usual(self, at: int) -> float | None:
        """`usual_load`, remembered: past bins do not change."""
        if at not in self._usual:
            self._usual[at] = usual_load(self.history, at)
        return self._usual[at]

    def forecast(self, now_s: float) -> float | None:
        """The load to be ready for: the most until a start asked for now serves, and a near peak.

        None before there is a past to learn from. Kept until the bins change.
        """
        bins = bin_of(now_s), bin_of(now_s + self.starts.expected_s)
        if self._forecast is None or self._forecast[0] != bins:
            self._forecast = bins, self._look_ahead(*bins)
        return self._forecast[1]

    def _look_ahead(self, here: int, ready: int) -> float | None:
        residuals = [
            self.history[b] - usual
            for b in range(here - TREND_BINS, here)
            if b in self.history and (usual := self.usual(b)) is not None
        ]
        known = [(b, u) for b in range(here, ready + 2) if (u := self.usual(b)) is not None]
        if not known:
            return None
        most = max(u + deviation(residuals, b - here + 1) for b, u in known)
        peak = self._peak(here)
        return max(most, 0.0 if peak is None else peak)

    def _peak(self, here: int) -> float | None:
        """The usual load at the top of the day, if that top lies within the lead time."""
        lead = int(self.lead_s // BIN_S)
        half = BINS_PER_DAY // 2
        step = max(lead // 2, 1)
        day = [u for b in range(here - half, here + half, step) if (u := self.usual(b)) is not None]
        near = [u for b in range(here, here + lead + 1) if (u := self.usual(b)) is not None]
        if not day or not near or max(near) < max(day):
            return None
        return max(near)

    def decide(self, now_s: float, load: float, queued: float, replicas: int) -> Plan:
        """The number of replicas to ask for, with the reasons; call it every few seconds."""
        forecast = self.forecast(now_s)
        wanted = want(Situation(load, queued, replicas, forecast), self.limits)
        current = self.desired if self.desired is not None else replicas
        braked = self.brakes.apply(wanted, current, self.limits, now_s)
        final: Desire = bounded(braked, self.limits)
        self.desired = final.replicas
        return Plan(
            desired=final.replicas,
            reason=final.reason,
            wanted=wanted.replicas,
            wanted_reason=wanted.reason,
            load=load,
            queued=queued,
            replicas=replicas,
            utilization=load / max(replicas, 1),
            forecast=forecast,
            forecast_at_s=now_s + self.starts.expected_s,
            startup_s=self.starts.expected_s,
        )
