import gc
import random
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from route_oracle import Bucket, Residency, bounded, cost, ring
from route_rig import MODEL, MS, Rig, S, request, settings

from headrace.core.balancer import POLICIES, Balancer, Verdict
from headrace.core.explanation import explain
from headrace.core.hashing import hash64
from headrace.core.lease import REASONS
from headrace.core.segment import FAILURE_NAMES, Segment

REFUSED = FAILURE_NAMES.index("refused")
GAUGES = ("requests", "seqs", "decoding", "pending_tokens", "kv_tokens", "inflight_tokens")


def terms(rig, slot, **given):
    found = rig.explain(**given)
    return next(row["terms"] for row in found["replicas"] if row["slot"] == slot)


# ---- what is in flight


@st.composite
def histories(draw):
    step = st.tuples(st.integers(0, 6), st.integers(0, 999), st.integers(0, 1))
    return draw(st.lists(step, max_size=60))


@given(histories())
def test_in_flight_sums_are_exact_under_any_history(steps):
    """Retries, restarts, removal and return in mid-request: what is open is what counts."""
    rig = Rig(3, processes=2, max_retries=3, min_per_s=1000.0)
    leases = []
    for action, number, process in steps:
        rig.now += number * MS
        lease = leases[number % len(leases)] if leases else None
        if action <= 1 or lease is None:
            given = {
                "stream": action == 0,
                "sequences": 1 + number % 3,
                "prompt_tokens": number * 1.1,
            }
            verdict, opened = rig.open(process, **given)
            leases += [opened] if verdict == Verdict.ROUTED else []
        elif action == 2:
            lease.tokens(rig.now, 1 + number % 5)
        elif action == 3:
            ends = (lease.finish, lease.cancel, lease.neutral, partial(lease.fail, failure=REFUSED))
            ends[number % 4](rig.now)
        elif action == 4:
            asked = request()
            verdict, again = rig.balancers[process].reopen(asked, lease, REFUSED, rig.now)
            leases += [again] if verdict == Verdict.ROUTED else []
        elif action == 5:
            rig.restart(number % 3, eligible=number % 2 == 0)
        else:
            rig.segment.clear_row(number % 3)
            rig.generations[number % 3] += 1
    for slot in range(3):
        mine = [x for x in leases if x.open and x.slot == slot]
        cell = rig.segment.cell(slot)
        assert cell["requests"] == len(mine)
        assert cell["seqs"] == sum(x.sequences for x in mine)
        assert cell["decoding"] <= cell["seqs"]
    for lease in leases:
        lease.cancel(rig.now)
        lease.finish(rig.now)
    for slot in range(3):
        cell = rig.segment.cell(slot)
        assert {name: cell[name] for name in GAUGES} == dict.fromkeys(GAUGES, 0)
        assert rig.segment.pair(slot + 1)["requests"] == 0


def test_a_forgotten_lease_gives_back_what_it_holds():
    rig = Rig(1)
    lease = rig.lease()
    lease.tokens(rig.now)
    del lease
    assert rig.segment.cell(0)["requests"] == 0


def test_leases_and_balancers_die_together_in_a_cycle():
    for _ in range(20):
        rig = Rig(2)
        rig.itself, rig.held = rig, [rig.lease() for _ in range(3)]
        rig.held[0].tokens(rig.now)
        del rig
    gc.collect()


def test_a_dead_process_takes_its_in_flight_along():
    rig = Rig(2, processes=2)
    held = [rig.lease(process=1) for _ in range(6)]
    assert sum(rig.segment.requests(s) for s in range(2)) == 6
    rig.segment.retire(1)
    assert sum(rig.segment.requests(s) for s in range(2)) == 0
    assert rig.explain()["replicas"][0]["terms"]["requests"] == 0
    assert len(held) == 6


def test_another_process_sees_a_claim_a_millisecond_later():
    rig = Rig(2, processes=2, policy="least_load")
    for _ in range(5):
        rig.lease(process=0)
    seen = Counter(rig.lease(process=1).slot for _ in range(5))
    assert sum(seen.values()) == 5 and abs(rig.segment.requests(0) - rig.segment.requests(1)) <= 1


# ---- choices


@pytest.mark.parametrize("policy", ["cost_aware", "least_load"])
def test_a_burst_between_two_scrapes_spreads(policy):
    rig = Rig(2, policy=policy)
    rig.row(1, running=1, waiting=0, foreign_seqs=1.0)
    held = [rig.lease(after_ms=0, prompt_tokens=30) for _ in range(40)]
    counts = Counter(lease.slot for lease in held)
    assert abs(counts[0] - counts[1]) <= 4


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_works_with_one_replica_and_gives_the_reason(policy):
    rig = Rig(1, policy=policy)
    lease = rig.lease(session=b"s", prefix=[1, 2, 3])
    assert lease.slot == 0 and REASONS[lease.reason] == "only"
    assert lease.decision.startswith(f"policy={policy}; reason=only; prompt_tokens=1000;")


@given(
    st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=30),
    st.integers(2, 12),
    st.sampled_from([1.0, 1.25, 2.0]),
)
def test_consistent_hash_agrees_with_the_plain_ring(keys, replicas, load_factor):
    rig = Rig(replicas, prefix_bytes=0, policy="consistent_hash", load_factor=load_factor)
    points = ring([f"replica-{slot}:8000" for slot in range(replicas)])
    loads, held = [0] * replicas, []
    for key in keys:
        lease = rig.lease(session=key)
        expected = bounded(points, hash64(key), loads, load_factor)
        if expected is None:
            assert REASONS[lease.reason] == "last_resort"
            assert loads[lease.slot] == min(loads)
        else:
            assert (lease.slot, REASONS[lease.reason]) == (expected, "session")
        loads[lease.slot] += 1
        held.append(lease)


def test_equal_keys_agree_across_processes():
    rig = Rig(8, processes=3, policy="consistent_hash")
    for n in range(40):
        slots = set()
        for process in range(3):
            lease = rig.lease(process, session=b"key %d" % n)
            slots.add(lease.slot)
            lease.finish(rig.now)
        assert len(slots) == 1


state = st.fixed_dictionaries(
    {
        "seqs": st.integers(0, 40),
        "foreign_seqs": st.floats(0, 50),
        "foreign_waiting": st.floats(0, 20),
        "weight": st.floats(0.1, 5),
        "kv_capacity_tokens": st.sampled_from([0, 5_000, 100_000]),
    }
)


@given(st.lists(state, min_size=1, max_size=5), st.floats(1, 20_000), st.integers(0, 4096))
def test_cost_aware_takes_the_least_cost_of_the_formula(states, prompt_tokens, max_tokens):
    rig = Rig(len(states), prefix_bytes=0)
    held = []
    for slot, wanted in enumerate(states):
        row = {k: wanted[k] for k in ("foreign_seqs", "foreign_waiting", "weight")}
        for other in range(len(states)):
            rig.row(other, eligible=other == slot)
        if wanted["seqs"]:
            held.append(rig.lease(sequences=wanted["seqs"], prompt_tokens=500))
            held[-1].tokens(rig.now, 40)
        states[slot] = row | {"kv_capacity_tokens": wanted["kv_capacity_tokens"]}
    for slot, row in enumerate(states):
        rig.row(slot, **row)
    asked = {"prompt_tokens": prompt_tokens, "max_tokens": max_tokens}
    found = rig.explain(**asked)
    learned = found["learned"]
    rates = {
        "base_s": learned["base_step_s"],
        "seq_s": learned["step_s_per_sequence"],
        "token_s": 1 / learned["prefill_tokens_per_s"],
        "output": learned["output_tokens"],
        "uncached": learned["uncached_tokens"],
    }
    output = found["estimate"]["output_tokens"]
    assert output == (min(200, max_tokens) if max_tokens else 200)
    costs = {}
    for row in found["replicas"]:
        expected = cost(row["terms"], max(prompt_tokens, 1), output, rates)
        assert row["score"] == pytest.approx(expected, rel=1e-5)
        assert row["score"] == pytest.approx(row["terms"]["cost_s"])
        costs[row["slot"]] = row["score"]
    assert costs[found["slot"]] <= min(costs.values()) + 1e-4
    lease = rig.lease(after_ms=20, **asked)  # what is learned is looked at each 10 ms
    assert costs[lease.slot] <= min(costs.values()) + 1e-4


def test_explain_changes_nothing():
    rig = Rig(4, policy="round_robin")
    before = [rig.segment.cell(s) for s in range(4)]
    budget = rig.reader.budget(rig.now)
    mine = [explain(rig.balancers[0], request(), rig.now)["slot"] for _ in range(3)]
    assert len(set(mine)) == 1 and len({rig.explain()["slot"] for _ in range(3)}) == 1
    assert [rig.segment.cell(s) for s in range(4)] == before
    assert rig.reader.budget(rig.now) == budget
    assert rig.lease().slot == mine[0]  # nobody's turn was used up


def test_a_reader_does_not_route():
    rig = Rig(2)
    assert rig.reader.open(request(), rig.now)[0] == Verdict.NO_REPLICA


# ---- residency


@given(st.data())
def test_residency_agrees_with_an_unbounded_cache(data):
    rig = Rig(3, prefix_bytes=1 << 20, policy="cost_aware")
    capacity = data.draw(st.integers(20, 200))
    for slot in range(3):
        rig.row(slot, kv_capacity_tokens=capacity * 64)
    model = Residency(capacity)
    families = [[hash64(b"%d/%d" % (f, i)) for i in range(30)] for f in range(4)]
    for _ in range(data.draw(st.integers(1, 25))):
        keys = families[data.draw(st.integers(0, 3))][: data.draw(st.integers(1, 30))]
        if data.draw(st.integers(0, 9)) == 0:
            slot = data.draw(st.integers(0, 2))
            rig.restart(slot, kv_capacity_tokens=capacity * 64)
            model.forget(slot)
        tokens = 64 * (len(keys) + 0.5)
        found = rig.explain(prefix=keys, prompt_tokens=tokens)
        for row in found["replicas"]:
            blocks, age = model.match(row["slot"], keys)
            hit = blocks * 64 * (1 - age * age)
            assert row["terms"]["hit_tokens"] == pytest.approx(hit, abs=0.01)
        lease = rig.lease(prefix=keys, prompt_tokens=tokens)
        uncached = max(tokens - lease.hit_tokens, 1)
        model.insert(lease.slot, keys, int((uncached + 63) // 64))
        lease.cancel(rig.now)


def test_a_new_generation_holds_nothing_however_often_it_comes():
    rig = Rig(1, prefix_bytes=1 << 16)
    keys = [hash64(b"%d" % i) for i in range(40)]
    for n in range(30):
        rig.lease(prefix=keys).finish(rig.now)
        for _ in range(1 + n % 9):
            rig.restart(0)
            assert terms(rig, 0, prefix=keys)["hit_tokens"] == 0
        if n % 7 == 0:
            rig.segment.sweep_prefixes(0.5)


def test_what_an_engine_tells_of_its_cache_is_resident_until_it_drops_it():
    rig = Rig(2)
    keys = [hash64(b"%d" % i) for i in range(10)]

    def hits(slot):
        return terms(rig, slot, prefix=keys, prompt_tokens=64 * 10.5)["hit_tokens"]

    rig.segment.store_prefixes(1, keys, 10)
    assert (hits(0), hits(1)) == (0, 640)
    rig.segment.remove_prefixes(1, keys[4:])
    assert hits(1) == 256
    rig.segment.remove_prefixes(1, [*keys, 0])
    assert hits(1) == 0


@pytest.mark.parametrize("followed", [False, True])
def test_leases_count_into_a_cache_only_if_its_engine_does_not_tell(followed):
    rig = Rig(1)
    rig.row(0, kv_capacity_tokens=100 * 64, followed=followed)
    keys = [hash64(b"%d" % i) for i in range(10)]
    rig.lease(prefix=keys, prompt_tokens=640).cancel(rig.now)
    for _ in range(3):
        lease = rig.lease(prefix=[], prompt_tokens=20 * 64)
        lease.tokens(rig.now)
        lease.finish(rig.now, 20 * 64, 20 * 64)
    assert (terms(rig, 0, prefix=keys)["hit_tokens"] > 600) == followed
    rig.segment.store_prefixes(0, keys, 10)
    assert terms(rig, 0, prefix=keys)["hit_tokens"] > 600
    rig.segment.store_prefixes(0, [], 1 << 40)
    assert terms(rig, 0, prefix=keys)["hit_tokens"] == 0


def test_a_sweep_in_parts_frees_what_is_dead_and_keeps_the_rest():
    rig = Rig(2, prefix_bytes=1 << 16)
    keys = [hash64(b"%d" % i) for i in range(40)]
    slot = rig.lease(prefix=keys).slot
    alive = sum(rig.segment.sweep_prefixes(1 / 64) for _ in range(64))
    assert alive == 40
    rig.restart(slot)
    assert sum(rig.segment.sweep_prefixes(1 / 8) for _ in range(8)) == 0


def test_unique_prompts_do_not_grow_the_table():
    rig = Rig(4, prefix_bytes=1 << 16)
    rng = random.Random(1)
    for _ in range(3000):
        rig.lease(prefix=[rng.getrandbits(64) for _ in range(20)]).cancel(rig.now)
    alive = sum(rig.segment.sweep_prefixes(1 / 4) for _ in range(4))
    assert 0 < alive <= (1 << 16) // 8


# ---- admission


def test_all_above_the_ratio_is_overloaded_and_none_eligible_is_no_replica():
    rig = Rig(2, overload_ratio=0.5)
    for slot in range(2):
        rig.row(slot, max_concurrency=2)
    held = [rig.lease() for _ in range(4)]  # at 1 of 2, not above one half
    assert rig.open()[0] == Verdict.OVERLOADED
    held.pop().finish(rig.now)
    assert rig.open()[0] == Verdict.ROUTED
    for slot in range(2):
        rig.row(slot, eligible=False)
    assert rig.open()[0] == Verdict.NO_REPLICA
    assert rig.open(model=MODEL + 1)[0] == Verdict.NO_REPLICA


def test_a_half_open_replica_gets_one_request_at_a_time():
    rig = Rig(2, policy="round_robin")
    rig.row(0, trickle=True)
    held = [rig.lease() for _ in range(6)]
    assert sum(lease.slot == 0 for lease in held) == 1
    rig.row(1, eligible=False)
    assert rig.open()[0] == Verdict.NO_REPLICA


def test_slow_start_caps_a_share_and_yields_when_alone():
    rig = Rig(3, policy="round_robin")
    rig.row(0, ramp=0.25)
    held = [rig.lease() for _ in range(42)]
    assert 4 <= sum(lease.slot == 0 for lease in held) <= 6
    for slot in (1, 2):
        rig.row(slot, eligible=False)
    assert rig.lease().slot == 0


def test_a_long_engine_queue_takes_no_request():
    rig = Rig(2, policy="round_robin")
    rig.row(0, max_queue=5, waiting=6)
    assert {rig.lease().slot for _ in range(4)} == {1}
    rig.row(1, max_queue=5, waiting=6)
    assert rig.open()[0] == Verdict.OVERLOADED


def test_the_whole_gateway_has_a_limit():
    rig = Rig(2, processes=2, max_concurrent_requests=3)
    rig.balancers[1].enter(3)
    assert rig.open()[0] == Verdict.ROUTED
    rig.balancers[0].enter(1)
    assert rig.open()[0] == Verdict.GATEWAY_FULL


def test_retry_after_comes_from_the_completion_rate():
    rig = Rig(1, overload_ratio=1.0)
    rig.row(0, max_concurrency=4)
    for _ in range(200):  # two requests a second end
        lease = rig.lease(after_ms=500)
        lease.finish(rig.now)
    held = [rig.lease() for _ in range(5)]
    assert rig.open()[0] == Verdict.OVERLOADED
    assert rig.balancers[0].wait_s(MODEL, rig.now) == 1
    rig.row(0, max_concurrency=1)
    rig.now += 2 * MS
    assert 1.5 <= rig.balancers[0].wait_s(MODEL, rig.now) <= 2.5  # 4 too many, 2 a second
    assert len(held) == 5


# ---- retries


def test_a_retry_goes_elsewhere_and_waits_out_a_jittered_back_off():
    rig = Rig(3, max_retries=2, backoff_s=0.1, jitter=0.5, min_per_s=100.0)
    asked = request()
    first = rig.lease()
    verdict, second = rig.balancers[0].reopen(asked, first, REFUSED, rig.now)
    assert verdict == Verdict.ROUTED and second.slot != first.slot and not first.open
    assert REASONS[second.reason] == "retry"
    assert 0.05 * S <= second.start_at_ns - rig.now <= 0.1 * S
    verdict, third = rig.balancers[0].reopen(asked, second, REFUSED, rig.now)
    assert verdict == Verdict.ROUTED and third.slot not in (first.slot, second.slot)
    assert 0.1 * S <= third.start_at_ns - rig.now <= 0.2 * S
    verdict, _ = rig.balancers[0].reopen(asked, third, REFUSED, rig.now)
    assert verdict == Verdict.RETRY_DENIED and not third.open
    assert rig.segment.cell(third.slot)["requests"] == 0


def test_a_retry_that_nobody_can_take_costs_no_budget():
    rig = Rig(1, min_per_s=5.0)
    lease = rig.lease()
    before = rig.balancers[0].budget(rig.now)
    assert rig.balancers[0].reopen(request(), lease, REFUSED, rig.now)[0] == Verdict.NO_REPLICA
    assert rig.balancers[0].budget(rig.now) == before


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3000)), max_size=120),
    st.floats(0, 1),
    st.floats(0, 10),
)
def test_the_budget_is_never_overdrawn(steps, ratio, floor):
    """Retries in all processes stay within the stated bound and the exact bucket."""
    rig = Rig(2, processes=2, max_retries=1, budget_ratio=ratio, min_per_s=floor)
    bucket = Bucket(ratio, floor, rig.now / S)
    start, retries = rig.now, 0
    for n, (wants_retry, wait_ms) in enumerate(steps):
        rig.now += wait_ms * MS
        lease = rig.lease(process=n % 2)
        bucket.advance(rig.now / S)
        bucket.tokens += ratio
        if wants_retry:
            verdict, again = rig.balancers[1 - n % 2].reopen(request(), lease, REFUSED, rig.now)
            if verdict == Verdict.ROUTED:
                retries += 1
                bucket.tokens -= 1
                again.cancel(rig.now)
        lease.cancel(rig.now)
        assert bucket.tokens >= -0.25 * floor - 0.01  # a tick of 67 ms may come early
        elapsed = (rig.now - start) / S
        assert retries <= floor + ratio * (n + 1) + floor * (elapsed + 0.07)


# ---- learning


def stream(rig, lease, first_s, gap_s, tokens):
    rig.now = lease.start_at_ns + int(first_s * S)
    lease.tokens(rig.now)
    for _ in range(tokens - 1):
        rig.now += int(gap_s * S)
        lease.tokens(rig.now)
    lease.finish(rig.now, 100, tokens)


def test_a_slow_replica_is_known_within_seconds_and_forgotten_in_thirty():
    rig = Rig(2, policy="round_robin")
    for _ in range(20):
        lease = rig.lease()
        stream(rig, lease, 0.05, 0.06 if lease.slot == 0 else 0.02, 50)
    slow, fast = (terms(rig, s)["slowness"] for s in range(2))
    assert 1.4 < slow / fast < 4 and slow > 1.2
    rig.now += 31 * S
    assert [terms(rig, s)["slowness"] for s in range(2)] == [1, 1]


def test_a_restart_forgets_how_slow_it_was_and_keeps_what_the_group_learned():
    rig = Rig(2, policy="round_robin")
    for _ in range(20):
        lease = rig.lease()
        stream(rig, lease, 0.05, 0.06 if lease.slot == 0 else 0.02, 50)
    learned = rig.explain()["learned"]
    rig.restart(0)
    assert terms(rig, 0)["slowness"] == 1
    assert rig.explain()["learned"]["pace_samples"] == learned["pace_samples"] == 980


def test_a_gap_across_another_first_token_is_no_sign_of_slowness():
    rig = Rig(1)
    first = rig.lease()
    first.tokens(rig.now + 10 * MS)
    for n in range(60):
        other = rig.lease(after_ms=20)
        other.tokens(rig.now + 100 * MS)
        rig.now += 200 * MS
        first.tokens(rig.now)
        other.cancel(rig.now)
        if n == 10:
            assert terms(rig, 0)["slowness"] == 1


def test_a_gap_while_we_paused_reading_is_no_sign_of_slowness():
    rig = Rig(1)
    lease = rig.lease()
    for n in range(100):
        rig.now += 20 * MS
        if n == 50:
            lease.pause()
            rig.now += 20 * S
        lease.tokens(rig.now)
    assert terms(rig, 0)["slowness"] == pytest.approx(1, abs=0.1)
    assert rig.explain()["learned"]["base_step_s"] < 0.03


def test_cancelled_and_failed_requests_teach_nothing():
    rig = Rig(1)
    for n in range(20):
        lease = rig.lease()
        lease.tokens(rig.now)
        lease.cancel(rig.now) if n % 2 else lease.fail(rig.now, REFUSED)
    rig.now += 20 * MS
    assert rig.explain()["learned"]["output_tokens"] == 200


def test_a_plain_request_decodes_from_its_predicted_first_token_on():
    rig = Rig(1, prefix_bytes=0)
    lease = rig.lease(stream=False, prompt_tokens=1000)
    cell = rig.segment.cell(0)
    assert (cell["pending_tokens"], cell["decoding"]) == (1000, 0)
    rig.now += 140 * MS  # 1.5 steps of 20 ms and 1,000 tokens at 10,000 a second
    rig.balancers[0].advance(rig.now)
    cell = rig.segment.cell(0)
    assert (cell["pending_tokens"], cell["decoding"]) == (0, 1)
    rig.now += 60 * S
    for _ in range(50):
        rig.now += S
        rig.balancers[0].advance(rig.now)
    assert rig.segment.cell(0)["kv_tokens"] == 1200  # no more than the usual answer
    lease.finish(rig.now, 1000, 500)
    assert rig.segment.cell(0)["kv_tokens"] == 0
    assert rig.explain()["learned"]["prefill_samples"] == 0


def test_the_finish_of_an_embedding_is_its_first_token():
    rig = Rig(1)
    lease = rig.lease(kind=1, stream=False)
    assert lease.output_tokens == 0
    rig.now += 100 * MS
    lease.finish(rig.now, 1000)
    rig.now += 20 * MS
    learned = rig.explain()["learned"]
    assert learned["prefill_samples"] == 1 and learned["output_tokens"] == 200


# ---- bad input


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, -float("inf")])
def test_bad_signals_are_neutral(bad):
    rig = Rig(3)
    rig.row(0, weight=bad, ramp=bad, foreign_seqs=bad, foreign_waiting=bad, kv_usage=bad)
    found = rig.explain(prompt_tokens=bad)
    scores = [row["score"] for row in found["replicas"]]
    assert len(set(scores)) == 1 and 0 < scores[0] < 1
    rig.lease(prompt_tokens=bad).finish(rig.now)


def test_bad_arguments_are_refused():
    segment = Segment.create(1, 0)
    b = Balancer(segment, 0, settings())
    for call in (
        lambda: Balancer(segment, 2, settings()),
        lambda: b.configure(settings(policy="best")),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: b.books.set_model(0, 0, [1024], [1]),
        lambda: b.books.set_model(0, 0, [1], [5000]),
        lambda: b.books.set_model(300, 0, [1], [1]),
        lambda: b.books.set_replica(-1, "x"),
    ):
        with pytest.raises(IndexError):
            call()
    assert b.open(request(model=-1), 1)[0] == Verdict.NO_REPLICA


def test_the_first_session_key_in_the_order_wins():
    asked = request()
    asked.offer(2, b"c")
    asked.offer(1, b"b")
    asked.offer(1, b"again")
    asked.offer(0, b"")
    assert asked.has_session and asked.session == hash64(b"b")
