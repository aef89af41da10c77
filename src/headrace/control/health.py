"""One replica's health: evidence in, state out.

Evidence of four kinds comes in: answers of the health path, of one-token probes, what live traffic
saw, and what the hardware says. It becomes signals; states.py has the table of what they do. Time
comes in as `now_ns`.

What takes a replica out decides what brings it back: failed health checks are answered by good
ones, a failed probe by a good probe, live failures by time and then a trickle of live traffic, a
drain by whoever ordered it. A new process behind the same URL clears what its predecessor did.
"""

from headrace.control.states import (
    IN_ROTATION,
    OUT_BY_DRAIN,
    TRANSITIONS,
    Cause,
    Health,
    HealthSettings,
    Mode,
    Probe,
    Signal,
    State,
    Traffic,
    View,
)

NS = 10**9
RAMP_START = 0.1  # share of its weight that a returning replica begins with
SICK_WEIGHT = 0.5  # of a replica with a hardware warning or a slow probe
REFUSED_TO_EJECT = 2  # refused health checks in a row; one, if live traffic was refused too
PROBES_TO_EJECT = 2  # failed probes in a row; one, if there was other evidence
RECENT_S = 2.0  # how long a refused connection of live traffic confirms a refused health check


class ReplicaHealth:
    """The machine of one replica; `is_new` asks for a slow start when it joins a running fleet."""

    def __init__(self, settings: HealthSettings, now_ns: int, is_new: bool = False) -> None:
        self.settings = settings
        self.mode = Mode.WARMING
        self.cause: Cause | None = None
        self.reason = "not proven yet"
        self.wants_health = True
        self._wants_ramp = is_new
        self._mode_since_ns = self._state_since_ns = now_ns
        self._ramp_since_ns: int | None = None
        self._marks: dict[str, str] = {}
        self._health_failures = self._health_successes = self._refused = 0
        self._last_refused_ns: int | None = None  # in live traffic
        self._last_life_ns: int | None = None  # a success or a byte in live traffic
        self._probe_failures = 0
        self._next_probe_ns = now_ns + self._ns(settings.probe_interval_s)
        self._suspicion = ""
        self._fail_streak = 0
        self._successes = 0  # of live traffic and probes since the mode began
        self._deadline_ns: int | None = None
        self._in_flight: int | None = None  # None: not heard since a drain began
        self.held = ""  # why its own entry keeps it out

    # ------------------------------------------------------------------ evidence

    def take_health(self, answer: Health, now_ns: int, detail: str = "") -> None:
        """Take the end of a health check; `detail` is for the reason, e.g. a status.

        While live traffic succeeds, an answer that does not come says only that it is busy.
        """
        self.wants_health = False
        if answer is Health.SLOW and self._lived_within(now_ns, self._patience_s()):
            return
        if answer is Health.OK:
            self._take_good_health(now_ns)
            return
        self._health_failures += 1
        self._health_successes = 0
        self._refused = self._refused + 1 if answer is Health.REFUSED else 0
        if answer is Health.REFUSED and self._is_dead(now_ns):
            self._go_down("health check: connection refused", now_ns)
        elif self._health_failures >= self.settings.failure_threshold:
            self._go_down(f"health check: {detail or answer.value}", now_ns)
        elif answer is Health.REFUSED:
            self.wants_health = True

    def _take_good_health(self, now_ns: int) -> None:
        self._health_failures = self._refused = 0
        self._health_successes += 1
        if self.mode is Mode.WARMING or (
            self.is_recovering and self._health_successes >= self.settings.success_threshold
        ):
            self._signal(Signal.PROVEN, now_ns)

    def _is_dead(self, now_ns: int) -> bool:
        confirmed = self._last_refused_ns is not None and (
            now_ns - self._last_refused_ns <= RECENT_S * NS
        )
        return confirmed or self._refused >= REFUSED_TO_EJECT

    def _go_down(self, reason: str, now_ns: int) -> None:
        """The process is gone, or says so itself: older evidence does not matter any more."""
        if self.mode in OUT_BY_DRAIN and self.cause is not Cause.LEAVING:
            return
        if self.mode is Mode.EJECTED and self._refused:
            self.cause, self.reason = Cause.HEALTH, reason
        self._signal(Signal.DOWN, now_ns, Cause.HEALTH, reason)

    def take_probe(self, answer: Probe, started_ns: int, now_ns: int, detail: str = "") -> None:
        """Take the end of a one-token inference that was begun at `started_ns`.

        A failure counts for nothing if live traffic made progress in the meantime.
        """
        self._next_probe_ns = now_ns + self._ns(self._probe_every_s())
        lived = self._last_life_ns is not None and self._last_life_ns > started_ns
        if answer is Probe.NEUTRAL or (answer is Probe.FAILED and lived):
            self._suspicion = ""
            return
        if answer is Probe.FAILED:
            self._take_failed_probe(detail, now_ns)
            return
        self._suspicion = ""
        self._probe_failures = 0
        self._mark("probe", f"slow probe: {detail}" if answer is Probe.SLOW else "", now_ns)
        if self.cause is Cause.LEAVING and self.mode in OUT_BY_DRAIN:
            self._signal(Signal.COOLED, now_ns, reason="half-open: a probe was answered")
        elif self.mode is Mode.HALF_OPEN or (
            self.mode is Mode.EJECTED and self.cause is Cause.PROBE and not self._health_failures
        ):
            self._signal(Signal.PROVEN, now_ns)

    def _take_failed_probe(self, detail: str, now_ns: int) -> None:
        self._probe_failures += 1
        reason = f"probe: {detail or 'failed'}"
        if self._suspicion:
            reason = f"{self._suspicion}; {reason}"
        if self._suspicion or self._probe_failures >= PROBES_TO_EJECT:
            self._suspicion = ""
            if self.mode in IN_ROTATION:
                self._signal(Signal.DOWN, now_ns, Cause.PROBE, reason)
        elif self.mode in IN_ROTATION:
            self.suspect("probe failed")

    def suspect(self, reason: str) -> None:
        """Ask for a probe at once; if it fails, the replica is ejected."""
        if self.mode in IN_ROTATION:
            self._suspicion = self._suspicion or reason

    def take_traffic(self, seen: Traffic, now_ns: int, may_eject: bool = True) -> None:
        """Take what live traffic saw since the last call.

        `may_eject` is False while enough of the fleet is out: then it only counts.
        """
        self._in_flight = seen.in_flight
        if seen.ok:
            self._last_life_ns = now_ns
        if seen.progress_ns:
            self._last_life_ns = max(self._last_life_ns or 0, seen.progress_ns)
        self._fail_streak = seen.trailing if seen.ok else self._fail_streak + seen.failed
        self._successes += seen.ok
        if seen.refused:
            self._last_refused_ns = now_ns
            self.wants_health = self.wants_health or self.mode in IN_ROTATION
        if may_eject and self.mode in IN_ROTATION:
            self._judge_traffic(seen, now_ns)
        self.tick(now_ns)

    def _judge_traffic(self, seen: Traffic, now_ns: int) -> None:
        if seen.leaving:
            self._signal(Signal.LEAVING, now_ns, Cause.LEAVING, "the engine is shutting down")
        elif seen.failed and (
            self.mode is Mode.HALF_OPEN or self._fail_streak >= self.settings.passive_failures
        ):
            reason = f"{self._fail_streak} failures in a row in live traffic"
            self._signal(Signal.TRIPPED, now_ns, Cause.TRAFFIC, reason)

    def take_restart(self, now_ns: int) -> None:
        """The engine process is a new one: what the old one did is void, and its cache is empty."""
        self._fail_streak = self._probe_failures = 0
        self._suspicion = ""
        if self.mode is Mode.EJECTED:
            self.cause = Cause.HEALTH
            self.wants_health = True
        elif self.cause is Cause.LEAVING and self.mode in OUT_BY_DRAIN:
            self._signal(Signal.UNDRAIN, now_ns, reason="restarted, not proven yet")
        elif self.mode is Mode.SERVING:
            self._ramp_since_ns = now_ns

    def set_warning(self, kind: str, reason: str, now_ns: int) -> None:
        """Set (or with an empty reason clear) what degrades the replica.

        `kind` is `hardware` (half the weight) or `slow` (a label: learned speed feeds it less).
        """
        self._mark(kind, reason, now_ns)

    # ------------------------------------------------------------------ orders

    def configure(self, settings: HealthSettings, now_ns: int) -> None:
        """Take new settings; with probes off, what only a probe could lift is lifted."""
        self.settings = settings
        if settings.probe_interval_s <= 0:
            self._suspicion = ""
            self._mark("probe", "", now_ns)
            if self.mode is Mode.EJECTED and self.cause is Cause.PROBE:
                self.cause = Cause.HEALTH

    def drain(self, cause: Cause, reason: str, now_ns: int, timeout_s: float) -> None:
        """No new requests from here on; `drained` when the last has ended or after `timeout_s`.

        A second order keeps the first's deadline; an operator's overrides every other cause.
        """
        if self.mode in OUT_BY_DRAIN:
            if cause is Cause.ADMIN or self.cause in (Cause.LEAVING, cause):
                self.cause, self.reason = cause, reason
            return
        self._deadline_ns = now_ns + self._ns(timeout_s)
        self._in_flight = None
        self._signal(Signal.DRAIN, now_ns, cause, reason)

    def hold(self, reason: str, now_ns: int, timeout_s: float) -> None:
        """Drain for as long as its own entry gives a reason; an empty one ends that.

        It ends no drain that somebody else ordered, and no other order ends it.
        """
        self.held = reason
        if reason:
            self.drain(Cause.HELD, reason, now_ns, timeout_s)
        elif self.cause is Cause.HELD:
            self.undrain(now_ns)

    def undrain(self, now_ns: int) -> None:
        """Back into rotation: at once in mid-drain if well, else after a good health check."""
        if self.held:
            self.cause, self.reason = Cause.HELD, self.held
            return
        is_well = self.mode is Mode.DRAINING and not self._health_failures
        if is_well and self._health_successes:
            self._signal(Signal.RESUME, now_ns)
        else:
            self._signal(Signal.UNDRAIN, now_ns, reason="undrained, not proven yet")

    def rejoin(self, now_ns: int) -> None:
        """The same URL is wanted again; only an operator's drain outlasts that."""
        if self.mode in OUT_BY_DRAIN and self.cause is Cause.REMOVED:
            self.undrain(now_ns)

    # ------------------------------------------------------------------ time

    def tick(self, now_ns: int) -> None:
        """Do what the time asks for: end drains, cool down, close a half-open breaker."""
        age_ns = now_ns - self._mode_since_ns
        settings = self.settings
        if self.mode is Mode.DRAINING:
            late = self._deadline_ns is not None and now_ns >= self._deadline_ns
            if self._in_flight == 0 or late:
                self._signal(Signal.EMPTY, now_ns)
        if self.mode is Mode.EJECTED and self.cause is Cause.TRAFFIC:
            if age_ns >= self._ns(settings.eject_s) and not self._health_failures:
                self._signal(Signal.COOLED, now_ns, reason="half-open after failures")
        elif self.cause is Cause.LEAVING and self.mode in OUT_BY_DRAIN:
            # With probes on, a probe asks whether it is still leaving.
            if settings.probe_interval_s <= 0 and age_ns >= self._ns(settings.eject_s):
                self._signal(Signal.COOLED, now_ns, reason="half-open after a shutdown notice")
        elif self.mode is Mode.HALF_OPEN:
            is_quiet = age_ns >= self._ns(settings.eject_s) and not self._health_failures
            if self._successes >= settings.success_threshold or is_quiet:
                self._signal(Signal.PROVEN, now_ns)

    def view(self, now_ns: int) -> View:
        """Return what is published at `now_ns`."""
        self.tick(now_ns)
        sick = not self._marks.keys().isdisjoint(("hardware", "probe"))
        return View(
            state=self.state,
            reason=self._shown_reason(),
            since_ns=self._state_since_ns,
            eligible=self.mode in IN_ROTATION,
            trickle=self.mode is Mode.HALF_OPEN,
            weight=SICK_WEIGHT if sick else 1.0,
            ramp=self._ramp(now_ns),
            wants_health=self.wants_health,
            wants_probe=self._wants_probe(now_ns),
        )

    @property
    def is_recovering(self) -> bool:
        """True between the first and the last of the good checks that readmit."""
        is_down = self.mode is Mode.EJECTED and self.cause is Cause.HEALTH
        return is_down and self._health_successes > 0

    @property
    def state(self) -> State:
        """The published state."""
        if self.mode is Mode.SERVING and self._marks:
            return State.DEGRADED
        return self.mode.value

    # ------------------------------------------------------------------ inside

    def _signal(
        self, signal: Signal, now_ns: int, cause: Cause | None = None, reason: str = ""
    ) -> None:
        following = TRANSITIONS.get((self.mode, signal))
        if following is None:
            return
        before, left = self.state, self.mode
        if signal is not Signal.EMPTY:
            self.cause, self.reason = cause, reason
        self.mode = following
        self._mode_since_ns = now_ns
        self._successes = 0
        ENTER[following](self, left, now_ns)
        self._note_state(before, now_ns)

    def _enter_serving(self, left: Mode, now_ns: int) -> None:
        self._fail_streak = self._probe_failures = 0
        comes_back = left in (Mode.EJECTED, Mode.HALF_OPEN) or self._wants_ramp
        self._ramp_since_ns = now_ns if comes_back else None
        self._wants_ramp = False
        self._next_probe_ns = now_ns + self._ns(self._probe_every_s())

    def _enter_half_open(self, left: Mode, now_ns: int) -> None:
        self._fail_streak = 0
        self._next_probe_ns = now_ns

    def _enter_warming(self, left: Mode, now_ns: int) -> None:
        self._wants_ramp = left is Mode.DRAINED or self._wants_ramp
        self.wants_health = True

    def _enter_out(self, left: Mode, now_ns: int) -> None:
        self._suspicion = ""
        self._health_successes = 0 if self.mode is Mode.EJECTED else self._health_successes
        self._next_probe_ns = now_ns + self._ns(self._probe_every_s())

    def _mark(self, kind: str, reason: str, now_ns: int) -> None:
        before = self.state
        if reason:
            self._marks[kind] = reason
        else:
            self._marks.pop(kind, None)
        self._note_state(before, now_ns)

    def _note_state(self, before: State, now_ns: int) -> None:
        if self.state is not before:
            self._state_since_ns = now_ns

    def _shown_reason(self) -> str:
        if self.mode is Mode.SERVING:
            return "; ".join(self._marks.values())
        return self.reason

    def _ramp(self, now_ns: int) -> float:
        if self._ramp_since_ns is None or self.settings.slow_start_s <= 0:
            return 1.0
        share = (now_ns - self._ramp_since_ns) / self._ns(self.settings.slow_start_s)
        return min(1.0, max(RAMP_START, share))

    def _wants_probe(self, now_ns: int) -> bool:
        if self.settings.probe_interval_s <= 0:
            return False
        if self.mode in IN_ROTATION:
            if self._suspicion:
                return True
            is_due = now_ns >= self._next_probe_ns
            is_sick = self.mode is Mode.HALF_OPEN or "probe" in self._marks
            return is_due and (is_sick or not self._lived_within(now_ns, self._probe_every_s()))
        asks = self.cause is Cause.PROBE or (
            self.cause is Cause.LEAVING and self.mode in OUT_BY_DRAIN
        )
        return asks and not self._health_failures and now_ns >= self._next_probe_ns

    def _probe_every_s(self) -> float:
        """A replica that is out is asked at least as often as live failures would be forgiven."""
        if self.mode in IN_ROTATION:
            return self.settings.probe_interval_s
        return min(self.settings.probe_interval_s, self.settings.eject_s)

    def _lived_within(self, now_ns: int, seconds: float) -> bool:
        return self._last_life_ns is not None and now_ns - self._last_life_ns < seconds * NS

    def _patience_s(self) -> float:
        return self.settings.interval_s + self.settings.timeout_s

    @staticmethod
    def _ns(seconds: float) -> int:
        return int(seconds * NS)


ENTER = {
    Mode.WARMING: ReplicaHealth._enter_warming,
    Mode.SERVING: ReplicaHealth._enter_serving,
    Mode.HALF_OPEN: ReplicaHealth._enter_half_open,
    Mode.DRAINING: ReplicaHealth._enter_out,
    Mode.DRAINED: ReplicaHealth._enter_out,
    Mode.EJECTED: ReplicaHealth._enter_out,
}
