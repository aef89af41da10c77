from hypothesis import given
from hypothesis import strategies as st

from headrace.control.fleet_health import FleetHealth
from headrace.control.health import NS
from headrace.control.slowness import SlownessJudge
from headrace.control.states import Health, HealthSettings, Mode, State, Traffic


def fleet(count, **settings):
    made = FleetHealth(HealthSettings(**settings))
    for n in range(count):
        made.add(f"r{n}", 0).take_health(Health.OK, 0)
    return made


def states(made, now_ns):
    return [made[name].view(now_ns).state for name in made]


def fail_all(made, now_ns, count=5):
    made.take_traffic({name: Traffic(failed=count, trailing=count) for name in made}, now_ns)


def test_failures_everywhere_eject_no_more_than_the_share():
    for count, ratio, most in ((4, 0.5, 2), (3, 0.34, 1), (5, 0.2, 1), (2, 0.5, 1), (1, 0.5, 0)):
        made = fleet(count, max_ejected_ratio=ratio)
        for n in range(5):
            fail_all(made, n * NS)
        assert states(made, 5 * NS).count(State.EJECTED) == most


def test_those_that_health_took_out_count_too_and_health_has_no_limit():
    made = fleet(4)
    for _ in range(3):
        for name in ("r0", "r1"):
            made[name].take_health(Health.FAILED, NS)
    fail_all(made, 2 * NS)
    assert states(made, 2 * NS).count(State.EJECTED) == 2
    for _ in range(3):
        for name in made:
            made[name].take_health(Health.FAILED, 3 * NS)
    assert states(made, 3 * NS).count(State.EJECTED) == 4


def test_the_share_is_of_those_that_serve_the_same_model():
    made = fleet(6)
    for n in range(6):
        made.set_models(f"r{n}", ["small"] if n < 4 else ["big"])
    seen = {f"r{n}": Traffic(failed=5, trailing=5) for n in range(4)}
    made.take_traffic(seen, NS)
    assert states(made, NS)[:4].count(State.EJECTED) == 2
    fail_all(made, 2 * NS)
    assert states(made, 2 * NS)[4:].count(State.EJECTED) == 1


def test_silence_while_others_advance_makes_a_suspect():
    made = fleet(2)
    for second in range(10):
        now_ns = second * NS
        silent = Traffic(in_flight=1, busy_since_ns=1)
        made.take_traffic({"r0": silent, "r1": Traffic(in_flight=1, progress_ns=now_ns)}, now_ns)
        assert made["r0"].view(now_ns).wants_probe == (second > 5)
    assert not made["r1"].view(9 * NS).wants_probe


def test_idle_long_prefill_and_general_silence_are_not_frozen():
    made = fleet(3)
    now_ns = 20 * NS
    seen = {
        "r0": Traffic(in_flight=0, progress_ns=NS),
        "r1": Traffic(in_flight=1, busy_since_ns=NS, pending_s=6.0),
        "r2": Traffic(in_flight=1, progress_ns=now_ns),
    }
    made.take_traffic(seen, now_ns)
    assert not any(made[name].view(now_ns).wants_probe for name in made)
    stuck = {name: Traffic(in_flight=1, busy_since_ns=NS, progress_ns=2 * NS) for name in made}
    made.take_traffic(stuck, now_ns)
    assert not any(made[name].view(now_ns).wants_probe for name in made)


def test_a_readded_replica_is_a_new_one():
    made = fleet(1)
    old = made["r0"]
    made.remove("r0")
    assert "r0" not in made and list(made) == []
    assert made.add("r0", NS, is_new=True) is not old


@given(
    st.integers(1, 8),
    st.sampled_from([0.0, 0.2, 0.34, 0.5, 1.0]),
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), min_size=8), max_size=25),
)
def test_live_failures_never_take_out_more_than_the_share(count, ratio, rounds):
    made = fleet(count, max_ejected_ratio=ratio)
    for n, outcomes in enumerate(rounds):
        now_ns = n * 4 * NS
        seen = {
            name: Traffic(ok=ok, failed=failed, trailing=failed)
            for name, (ok, failed) in zip(made, outcomes, strict=False)
        }
        made.take_traffic(seen, now_ns)
        ejected = sum(made[name].mode is Mode.EJECTED for name in made)
        assert ejected <= ratio * count


# ------------------------------------------------------------------ slowness


def follow(judge, slowness, seconds, start=0):
    return [set(judge.update(slowness, (start + s) * NS)) for s in range(seconds)]


def test_a_replica_far_slower_than_its_peers_is_slow_after_a_while_and_recovers():
    judge = SlownessJudge()
    seen = follow(judge, {"a": 1.0, "b": 1.1, "c": 4.0, "d": 0.9}, 12)
    assert seen == [set()] * 10 + [{"c"}] * 2
    seen = follow(judge, {"a": 1.0, "b": 1.1, "c": 2.5, "d": 0.9}, 30, 20)
    assert seen == [{"c"}] * 30  # not slow enough to be called slow, not well enough to be cleared
    seen = follow(judge, {"a": 1.0, "b": 1.1, "c": 1.5, "d": 0.9}, 12, 60)
    assert seen == [{"c"}] * 10 + [set()] * 2


def test_the_faster_of_two_sets_the_yardstick():
    assert follow(SlownessJudge(), {"a": 1.0, "b": 3.5}, 12)[-1] == {"b"}


def test_a_moment_alone_and_the_unknown_say_nothing():
    judge = SlownessJudge()
    for start in range(0, 100, 10):
        assert not any(follow(judge, {"a": 1.0, "b": 9.0}, 5, start))
        assert not any(follow(judge, {"a": 1.0, "b": 1.0}, 1, start + 5))
    assert not any(follow(judge, {"a": 9.0}, 20, 200))
    assert not any(follow(judge, {"a": 9.0, "b": None}, 20, 300))


def test_a_slow_replica_that_left_is_forgotten():
    judge = SlownessJudge()
    follow(judge, {"a": 1.0, "b": 9.0}, 12)
    assert follow(judge, {"a": 1.0}, 1, 20) == [set()]
    assert follow(judge, {"a": 1.0, "b": 9.0}, 1, 30) == [set()]


@given(st.floats(0.1, 10), st.integers(2, 8))
def test_equal_replicas_are_never_slow(value, count):
    assert not any(follow(SlownessJudge(), {str(n): value for n in range(count)}, 15))
