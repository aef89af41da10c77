import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.health import NS, ReplicaHealth
from headrace.control.states import (
    TRANSITIONS,
    Cause,
    Health,
    HealthSettings,
    Mode,
    Probe,
    Signal,
    State,
    Traffic,
)

SETTINGS = HealthSettings()


class Clocked:
    """A machine with a clock that is moved by hand."""

    def __init__(self, **settings):
        self.now_ns = 1000 * NS
        self.machine = ReplicaHealth(HealthSettings(**settings), self.now_ns)

    def wait(self, seconds):
        self.now_ns += int(seconds * NS)
        return self

    def health(self, *answers, every_s=1.0):
        for answer in answers:
            self.wait(every_s).machine.take_health(answer, self.now_ns)
        return self

    def probe(self, answer, took_s=1.0):
        started_ns = self.now_ns
        self.wait(took_s).machine.take_probe(answer, started_ns, self.now_ns)
        return self

    def traffic(self, may_eject=True, **seen):
        self.wait(0.1).machine.take_traffic(Traffic(**seen), self.now_ns, may_eject)
        return self

    def fail(self, count):
        for n in range(count):
            self.traffic(failed=1, trailing=n + 1)
        return self

    @property
    def view(self):
        return self.machine.view(self.now_ns)

    @property
    def state(self):
        return self.view.state


def ready(**settings):
    return Clocked(**settings).health(Health.OK)


OK, SLOW, FAILED, REFUSED = Health.OK, Health.SLOW, Health.FAILED, Health.REFUSED


def test_every_mode_can_be_reached_and_left():
    assert {mode for mode, _ in TRANSITIONS} == set(Mode)
    assert set(TRANSITIONS.values()) == set(Mode)
    assert {signal for _, signal in TRANSITIONS} == set(Signal)


# ------------------------------------------------------------------ active checks


@pytest.mark.parametrize(
    "answers, state",
    [
        ([], State.WARMING),
        ([OK], State.READY),
        ([FAILED, FAILED], State.WARMING),
        ([FAILED, FAILED, FAILED], State.EJECTED),
        ([OK, FAILED, SLOW], State.READY),
        ([OK, FAILED, SLOW, FAILED], State.EJECTED),
        ([OK, *[FAILED, OK] * 12], State.READY),
        ([OK, REFUSED], State.READY),
        ([OK, REFUSED, REFUSED], State.EJECTED),
        ([OK, FAILED, FAILED, FAILED, OK], State.EJECTED),
        ([OK, FAILED, FAILED, FAILED, OK, FAILED, OK], State.EJECTED),
        ([OK, FAILED, FAILED, FAILED, OK, OK], State.READY),
    ],
)
def test_health_checks_by_the_thresholds(answers, state):
    assert Clocked().health(*answers).state is state


def test_a_refused_check_is_repeated_at_once_and_a_good_one_of_an_ejected_replica_soon():
    one = ready()
    assert not one.view.wants_health
    assert one.health(REFUSED).view.wants_health
    assert not one.health(REFUSED).view.wants_health
    assert one.health(OK).machine.is_recovering


def test_live_refusals_ask_for_a_check_out_of_turn_and_confirm_it():
    one = ready().traffic(failed=1, refused=1, trailing=1)
    assert one.view.wants_health and one.state is State.READY
    one.health(REFUSED, every_s=0.1)
    assert one.state is State.EJECTED
    assert "refused" in one.view.reason


def test_an_old_refusal_confirms_nothing():
    one = ready().traffic(failed=1, refused=1, trailing=1).wait(5)
    assert one.health(OK, REFUSED).state is State.READY


@pytest.mark.parametrize("life", [{"ok": 1}, {"progress_ns": 1}])
def test_slow_answers_eject_nobody_while_live_traffic_succeeds(life):
    one = ready()
    for _ in range(20):
        progress_ns = one.now_ns if "progress_ns" in life else 0
        one.traffic(ok=life.get("ok", 0), in_flight=3, progress_ns=progress_ns)
        one.health(SLOW, every_s=5)
        assert one.state is State.READY
    one.wait(20).health(SLOW, SLOW, SLOW)
    assert one.state is State.EJECTED


def test_a_status_counts_whatever_live_traffic_does():
    one = ready()
    for _ in range(3):
        one.traffic(ok=1).health(FAILED)
    assert one.state is State.EJECTED


# ------------------------------------------------------------------ probes


def test_a_slow_probe_halves_the_weight_until_a_fast_one():
    one = ready().probe(Probe.SLOW)
    assert (one.state, one.view.weight) == (State.DEGRADED, 0.5)
    assert "probe" in one.view.reason
    one.traffic(ok=5).wait(SETTINGS.probe_interval_s)
    assert one.traffic(ok=5).view.wants_probe  # live traffic does not excuse a sick one
    one.probe(Probe.OK)
    assert (one.state, one.view.weight) == (State.READY, 1.0)


def test_two_failed_probes_eject_and_a_good_one_brings_back():
    one = ready().wait(31)
    assert one.view.wants_probe
    one.probe(Probe.FAILED)
    assert (one.state, one.view.wants_probe) == (State.READY, True)
    one.probe(Probe.FAILED)
    assert one.state is State.EJECTED
    one.health(OK, OK, OK)
    assert one.state is State.EJECTED  # a good page proves nothing about the engine
    one.wait(SETTINGS.eject_s)
    assert one.view.wants_probe
    assert one.probe(Probe.OK).state is State.READY


def test_a_failed_probe_counts_for_nothing_if_traffic_advanced_meanwhile():
    one = ready()
    for _ in range(5):
        started_ns = one.now_ns
        one.traffic(progress_ns=one.now_ns + 10**6, in_flight=1)
        one.machine.take_probe(Probe.FAILED, started_ns, one.wait(1).now_ns)
    assert one.state is State.READY


def test_a_neutral_probe_changes_nothing():
    one = ready()
    for _ in range(5):
        one.probe(Probe.NEUTRAL)
    assert one.state is State.READY


def test_a_suspect_is_probed_at_once_and_one_failure_ejects():
    one = ready()
    one.machine.suspect("no progress")
    assert one.view.wants_probe
    one.probe(Probe.FAILED)
    assert one.state is State.EJECTED
    assert "no progress" in one.view.reason


def test_a_suspect_that_answers_is_cleared():
    one = ready()
    one.machine.suspect("no progress")
    one.probe(Probe.OK)
    assert (one.state, one.view.wants_probe) == (State.READY, False)


def test_live_traffic_excuses_from_probes_and_zero_turns_them_off():
    one = ready().wait(29).traffic(ok=1).wait(5)
    assert not one.view.wants_probe
    assert one.wait(30).view.wants_probe
    off = ready(probe_interval_s=0).wait(1000)
    off.machine.suspect("no progress")
    assert not off.view.wants_probe


# ------------------------------------------------------------------ live traffic


def test_failures_in_a_row_eject_for_a_while_then_a_trickle_then_a_ramp():
    one = ready().fail(4)
    assert one.state is State.READY
    one.traffic(failed=1, trailing=5)
    assert one.state is State.EJECTED and not one.view.eligible
    one.health(OK, OK, OK)
    assert one.state is State.EJECTED
    one.wait(10)
    assert one.view.trickle and one.view.eligible and one.state is State.DEGRADED
    one.traffic(ok=2)
    assert one.state is State.READY and not one.view.trickle
    ramp = [round(one.wait(1).view.ramp, 1) for _ in range(11)]
    assert ramp == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0]


def test_one_failure_in_the_trickle_ejects_again():
    one = ready().fail(5).wait(10)
    assert one.view.trickle
    assert one.traffic(failed=1, trailing=1).state is State.EJECTED


def test_a_quiet_trickle_ends_by_itself_while_health_is_good():
    one = ready().fail(5).wait(10)
    assert one.view.trickle
    assert one.wait(10).state is State.READY


def test_a_probe_ends_the_trickle():
    one = ready().fail(5).wait(10)
    assert one.view.wants_probe
    assert one.probe(Probe.OK).state is State.READY


def test_a_success_in_between_begins_the_row_anew():
    one = ready().fail(4).traffic(ok=1, failed=2, trailing=1).fail(3)
    assert one.state is State.READY
    assert one.traffic(failed=1, trailing=5).state is State.EJECTED


def test_no_more_failures_than_the_limit_allows_eject():
    one = ready()
    for n in range(20):
        one.traffic(may_eject=False, failed=1, trailing=n + 1)
    assert one.state is State.READY
    assert one.traffic(failed=1, trailing=21).state is State.EJECTED


def test_no_amount_of_neutral_outcomes_changes_anything():
    one = ready().fail(4)
    for _ in range(100):
        one.traffic(trailing=4)
    assert one.state is State.READY
    assert one.traffic(failed=1, trailing=5).state is State.EJECTED  # nor do they reset the row


# ------------------------------------------------------------------ leaving


def test_an_engine_that_says_it_leaves_drains_at_once_then_goes_and_comes_back():
    one = ready().traffic(leaving=1, in_flight=2)
    assert one.state is State.DRAINING
    assert one.health(OK).traffic(in_flight=1).state is State.DRAINING
    one.health(REFUSED, REFUSED)
    assert one.state is State.EJECTED
    one.machine.take_restart(one.now_ns)
    assert one.health(OK, OK).state is State.READY


def test_a_false_farewell_is_undone_by_a_probe():
    one = ready().traffic(leaving=1).wait(11)
    assert one.view.wants_probe
    one.probe(Probe.OK)
    assert one.view.trickle


def test_without_probes_a_farewell_ends_in_a_trickle():
    one = ready(probe_interval_s=0).traffic(leaving=1)
    assert one.wait(9).state is State.DRAINED or one.state is State.DRAINING
    assert one.wait(2).view.trickle


def test_a_quick_restart_after_a_farewell_needs_a_good_check():
    one = ready().traffic(leaving=1, in_flight=1)
    one.machine.take_restart(one.now_ns)
    assert (one.state, one.view.wants_health) == (State.WARMING, True)
    assert one.health(OK).state is State.READY


# ------------------------------------------------------------------ drains


def drained(cause=Cause.ADMIN, in_flight=0, timeout_s=300):
    one = ready()
    one.machine.drain(cause, "by order", one.now_ns, timeout_s)
    return one.traffic(in_flight=in_flight)


def test_a_drain_waits_for_the_last_request():
    one = drained(in_flight=3)
    assert (one.state, one.view.eligible) == (State.DRAINING, False)
    assert one.traffic(in_flight=1).state is State.DRAINING
    assert one.traffic(in_flight=0).state is State.DRAINED


def test_a_drain_is_not_over_before_it_was_heard_how_much_is_in_flight():
    one = ready()
    one.machine.drain(Cause.ADMIN, "by order", one.now_ns, 300)
    assert one.state is State.DRAINING


def test_a_drain_ends_at_its_deadline():
    assert drained(in_flight=1, timeout_s=60).wait(61).state is State.DRAINED


def test_a_drained_replica_stays_out_whatever_health_says():
    one = drained()
    one.health(OK, FAILED, FAILED, FAILED, OK, OK, REFUSED, REFUSED, OK)
    one.machine.take_restart(one.now_ns)
    one.probe(Probe.OK).traffic(ok=3, failed=9, trailing=9)
    assert one.wait(1000).state is State.DRAINED


def test_undrain_after_the_drain_needs_a_good_check_and_ramps():
    one = drained()
    one.machine.undrain(one.now_ns)
    assert (one.state, one.view.wants_health) == (State.WARMING, True)
    one.health(OK)
    assert (one.state, one.view.ramp) == (State.READY, 0.1)


def test_undrain_in_mid_drain_is_at_once_and_for_good():
    one = drained(in_flight=1)
    one.machine.undrain(one.now_ns)
    assert (one.state, one.view.ramp) == (State.READY, 1.0)
    assert one.traffic(in_flight=0).wait(1000).state is State.READY


def test_undrain_of_a_sick_one_in_mid_drain_needs_a_good_check():
    one = drained(in_flight=1).health(FAILED)
    one.machine.undrain(one.now_ns)
    assert one.state is State.WARMING


@pytest.mark.parametrize(
    "cause, state", [(Cause.REMOVED, State.READY), (Cause.ADMIN, State.DRAINING)]
)
def test_only_an_operators_drain_outlasts_a_rejoin(cause, state):
    one = drained(cause, in_flight=1)
    one.machine.rejoin(one.now_ns)
    assert one.state is state


def test_an_operator_takes_over_the_drain_of_one_that_leaves():
    one = ready().traffic(leaving=1, in_flight=1)
    one.machine.drain(Cause.ADMIN, "by order", one.now_ns, 300)
    one.machine.take_restart(one.now_ns)
    assert one.health(OK, OK).traffic().state is State.DRAINED


def held(reason="maintenance", in_flight=0):
    one = ready()
    one.machine.hold(reason, one.now_ns, 300)
    return one.traffic(in_flight=in_flight)


def test_a_hold_drains_until_it_ends():
    one = held(in_flight=1)
    assert (one.state, one.view.reason) == (State.DRAINING, "maintenance")
    one.machine.hold("scaled down", one.now_ns, 300)
    assert one.view.reason == "scaled down"
    one.machine.hold("", one.now_ns, 300)
    assert one.state is State.READY


@pytest.mark.parametrize("cause", [Cause.ADMIN, Cause.HARDWARE])
def test_the_end_of_a_hold_ends_no_other_drain(cause):
    one = drained(cause, in_flight=1)
    one.machine.hold("scaled down", one.now_ns, 300)
    one.machine.hold("", one.now_ns, 300)
    assert (one.state, one.view.reason) == (State.DRAINING, "by order")


def test_undrain_leaves_a_hold_in_force():
    one = held(in_flight=1)
    one.machine.drain(Cause.ADMIN, "by order", one.now_ns, 300)
    assert one.view.reason == "by order"
    one.machine.undrain(one.now_ns)
    assert (one.state, one.view.reason) == (State.DRAINING, "maintenance")


@pytest.mark.parametrize("before", [[], [OK, REFUSED, REFUSED]])
def test_one_that_does_not_serve_can_be_held_too(before):
    one = Clocked().health(*before)
    one.machine.hold("maintenance", one.now_ns, 300)
    assert one.traffic().state is State.DRAINED
    one.machine.hold("", one.now_ns, 300)
    assert one.state is State.WARMING
    assert one.health(OK).state is State.READY


# ------------------------------------------------------------------ the rest


def test_a_hardware_warning_halves_the_weight_and_slowness_is_a_label():
    one = ready()
    one.machine.set_warning("slow", "slow", one.now_ns)
    assert (one.state, one.view.weight) == (State.DEGRADED, 1.0)
    one.machine.set_warning("hardware", "GPU 5: hot", one.now_ns)
    assert (one.view.weight, one.view.reason) == (0.5, "slow; GPU 5: hot")
    one.machine.set_warning("hardware", "", one.now_ns)
    one.machine.set_warning("slow", "", one.now_ns)
    assert (one.state, one.view.weight) == (State.READY, 1.0)


def test_since_moves_with_the_state_only():
    one = ready()
    first = one.view.since_ns
    assert one.health(OK, FAILED).traffic(ok=1).view.since_ns == first
    one.wait(1).machine.set_warning("slow", "slow", one.now_ns)
    assert one.view.since_ns == one.now_ns


def test_a_restart_clears_what_the_old_process_did():
    one = ready().fail(5)
    one.machine.take_restart(one.now_ns)
    assert one.health(OK, OK).state is State.READY
    one = ready().fail(4)
    one.machine.take_restart(one.now_ns)
    assert one.traffic(failed=1, trailing=5).state is State.READY
    assert one.view.ramp < 1


def test_the_first_start_has_no_ramp_and_a_newcomer_has():
    assert ready().view.ramp == 1.0
    newcomer = ReplicaHealth(SETTINGS, 0, is_new=True)
    newcomer.take_health(OK, NS)
    assert newcomer.view(NS).ramp == 0.1


EVENTS = st.one_of(
    st.tuples(st.just("health"), st.sampled_from(Health)),
    st.tuples(st.just("probe"), st.sampled_from(Probe)),
    st.tuples(
        st.just("traffic"),
        st.builds(
            Traffic,
            ok=st.integers(0, 2),
            failed=st.integers(0, 3),
            refused=st.integers(0, 1),
            leaving=st.integers(0, 1),
            trailing=st.integers(0, 6),
            in_flight=st.integers(0, 2),
        ),
    ),
    st.tuples(st.just("wait"), st.floats(0, 60)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("suspect"), st.none()),
    st.tuples(st.just("drain"), st.sampled_from([Cause.ADMIN, Cause.HARDWARE, Cause.REMOVED])),
    st.tuples(st.just("undrain"), st.none()),
    st.tuples(st.just("hold"), st.sampled_from(["", "maintenance"])),
)


def play(one, events):
    for kind, what in events:
        if kind == "health":
            one.health(what)
        elif kind == "probe":
            one.probe(what)
        elif kind == "traffic":
            one.wait(0.1).machine.take_traffic(what, one.now_ns)
        elif kind == "wait":
            one.wait(what)
        elif kind == "restart":
            one.machine.take_restart(one.now_ns)
        elif kind == "suspect":
            one.machine.suspect("suspected")
        elif kind == "drain":
            one.machine.drain(what, "by order", one.now_ns, 300)
        elif kind == "hold":
            one.machine.hold(what, one.now_ns, 300)
        else:
            one.machine.undrain(one.now_ns)
        yield one.view


@given(st.lists(EVENTS, max_size=40))
def test_what_is_published_is_always_consistent(events):
    for view in play(Clocked(), events):
        in_rotation = view.state in (State.READY, State.DEGRADED)
        assert view.eligible == in_rotation
        assert not view.trickle or view.state is State.DEGRADED
        assert 0 < view.ramp <= 1 and view.weight in (0.5, 1.0)
        assert view.reason or view.state is State.READY


@given(st.lists(EVENTS.filter(lambda e: e[0] != "undrain"), max_size=20))
def test_nothing_but_undrain_ends_an_operators_drain(events):
    one = ready()
    one.machine.drain(Cause.ADMIN, "by order", one.now_ns, 300)
    for view in play(one, events):
        assert view.state in (State.DRAINING, State.DRAINED)


@given(st.lists(EVENTS.filter(lambda e: e[0] != "hold"), max_size=20))
def test_nothing_ends_a_hold_but_its_end(events):
    for view in play(held(), events):
        assert view.state in (State.DRAINING, State.DRAINED)


@given(st.lists(EVENTS, max_size=30), st.sampled_from([0.0, 30.0]))
def test_when_everything_is_good_every_replica_is_ready_in_the_end(events, probe_interval_s):
    one = Clocked()
    list(play(one, events))
    one.machine.hold("", one.now_ns, 300)
    one.machine.undrain(one.now_ns)
    one.machine.configure(HealthSettings(probe_interval_s=probe_interval_s), one.now_ns)
    for _ in range(60):
        one.health(OK, every_s=5).traffic()
        if one.view.wants_probe:
            one.probe(Probe.OK)
    assert one.state is State.READY


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=60))
def test_no_sequence_of_neutral_outcomes_moves_a_replica(steps):
    one = ready(probe_interval_s=0)
    for in_flight, trailing in steps:
        one.traffic(in_flight=in_flight, trailing=trailing)
        assert one.state is State.READY
