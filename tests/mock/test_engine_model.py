"""The engine model: its bookkeeping, and the facts about vLLM that it has to reproduce."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from engine_helpers import COSTS, MS, US, chain, new_engine, packed, run_to_end
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.mock.engine_model import FINISHED, FIRST_TOKEN, NEVER_NS, SCHEDULED, TOKENS, Engine

REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 30 * MS),  # after the one before
        st.integers(1, 200),
        st.integers(1, 60),
        st.integers(0, 2),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=40,
)


def submit_all(engine, requests):
    """Submit at their times; the handles, the hashes and the events on the way."""
    now, handles, hashes, events = 0, [], [], []
    for request_id, (wait_ns, prompt, output, group, shared) in enumerate(requests):
        now += wait_ns
        mine = chain(group, shared, request_id, prompt // 16)
        events += engine.advance(now)
        handles.append(engine.submit(now, request_id, prompt, output, packed(mine)))
        hashes.append(mine)
    return now, handles, hashes, events


def times(events, kind):
    return {request_id: time_ns for time_ns, which, request_id, _ in events if which == kind}


@given(requests=REQUESTS)
@settings(deadline=None)
def test_kv_accounting_returns_to_zero_and_tokens_are_conserved(requests):
    engine = new_engine(kv_tokens=16 * 25)
    *_, events = submit_all(engine, requests)
    rest, end_ns = run_to_end(engine)
    events += rest
    assert engine.kv_usage_ratio(end_ns) == 0.0
    assert times(events, FIRST_TOKEN).keys() == times(events, FINISHED).keys()
    assert len(times(events, FINISHED)) == engine.finished == len(requests)
    assert engine.generated_tokens == sum(request[2] for request in requests)
    assert engine.prompt_tokens == engine.prefix_queries_tokens == sum(r[1] for r in requests)
    computed = engine.prompt_tokens - engine.prefix_hits_tokens
    if engine.preemptions == 0:
        assert engine.prefilled_tokens == computed
    else:
        assert engine.prefilled_tokens >= computed


@given(requests=REQUESTS)
@settings(deadline=None)
def test_the_hit_rate_is_the_ideal_one_while_everything_fits(requests):
    engine = new_engine(kv_tokens=16 * 2000, max_num_seqs=64)
    *_, hashes, _ = submit_all(engine, requests)
    run_to_end(engine)
    seen, hits = set(), 0
    for mine, (_, prompt, *_) in zip(hashes, requests, strict=True):
        for hash_ in mine[: (prompt - 1) // 16]:
            if hash_ not in seen:
                break
            hits += 16
        seen.update(mine)
    assert engine.prefix_hits_tokens == hits


@given(requests=REQUESTS, slots=st.integers(1, 8))
@settings(deadline=None)
def test_requests_leave_the_queue_in_the_order_they_came(requests, slots):
    engine = new_engine(max_num_seqs=slots, detailed=True)
    *_, events = submit_all(engine, requests)
    events += run_to_end(engine)[0]
    left = [request_id for _, kind, request_id, _ in events if kind == SCHEDULED]
    assert left == sorted(left)


@given(requests=REQUESTS, aborts=st.sets(st.integers(0, 39)), after_ns=st.integers(0, 400 * MS))
@settings(deadline=None)
def test_an_abort_at_any_time_frees_at_once_and_ends_once(requests, aborts, after_ns):
    engine = new_engine(kv_tokens=16 * 25, max_num_seqs=4)
    now, handles, _, events = submit_all(engine, requests)
    now += after_ns
    events += engine.advance(now)
    done = times(events, FINISHED).keys()
    aborted = 0
    for which in sorted(aborts & set(range(len(handles)))):
        assert engine.abort(now, handles[which]) == (which not in done)
        assert not engine.abort(now, handles[which])
        aborted += which not in done
    if engine.running_count + engine.waiting_count == 0:
        assert engine.kv_usage_ratio(now) == 0.0
    _, end_ns = run_to_end(engine)
    assert engine.aborted == aborted
    assert engine.finished == len(requests) - aborted
    assert engine.kv_usage_ratio(max(now, end_ns)) == 0.0


@given(requests=REQUESTS, seed=st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=30)
def test_the_same_seed_gives_the_same_run(requests, seed):
    def run():
        engine = new_engine(noise_ratio=0.3, seed=seed, detailed=True)
        *_, events = submit_all(engine, requests)
        return events + run_to_end(engine)[0]

    assert run() == run()


def test_another_seed_gives_other_noise():
    def end(seed):
        engine = new_engine(noise_ratio=0.1, seed=seed)
        engine.submit(0, 1, 100, 50)
        return run_to_end(engine)[1]

    ends = {end(seed) for seed in range(20)}
    exact_ns = (5 * MS + 100 * 30 * US) + sum(5 * MS + 25 * US + 55 * (100 + i) for i in range(49))
    assert len(ends) == 20
    assert all(abs(found / exact_ns - 1) < 0.05 for found in ends)


def test_a_step_costs_base_prefill_decode_and_context():
    engine = new_engine()
    engine.submit(7, 1, 100, 2)
    events, _ = run_to_end(engine)
    first_ns = 7 + 5 * MS + 100 * 30 * US
    last_ns = first_ns + 5 * MS + 25 * US + 55 * 100
    assert events == [(first_ns, FIRST_TOKEN, 1, 0), (last_ns, FINISHED, 1, 2)]


def test_a_prompt_found_in_full_still_computes_its_last_block():
    for prompt, cached in ((64, 48), (65, 64), (79, 64)):
        engine = new_engine()
        hashes = packed(range(1, prompt // 16 + 1))
        engine.submit(0, 1, prompt, 1, hashes)
        _, now = run_to_end(engine)
        assert engine.cached_prefix_tokens(hashes, prompt) == cached
        engine.submit(now, 2, prompt, 1, hashes)
        assert engine.advance(engine.next_event_ns())[0][3] == cached


def test_a_long_prompt_is_computed_in_chunks_behind_the_decoding_ones():
    engine = new_engine(kv_tokens=16 * 1001, max_num_batched_tokens=256)
    engine.submit(0, 1, 10, 500)
    now = engine.next_event_ns()
    engine.advance(now)
    engine.submit(now, 2, 1000, 1)
    chunks = [255, 255, 255, 235]  # one token of each step's budget goes to request 1
    expected_ns = now + sum(
        round(5e6 + 30e3 * chunk + 25e3 + 55 * (10 + i)) for i, chunk in enumerate(chunks)
    )
    events = []
    while not times(events, FIRST_TOKEN):
        events += engine.advance(engine.next_event_ns())
    assert times(events, FIRST_TOKEN)[2] == expected_ns


def test_when_memory_is_full_the_newest_gives_way_and_comes_back_first():
    engine = new_engine(kv_tokens=16 * 9, detailed=True)
    for request_id in (1, 2, 3):
        engine.submit(0, request_id, 30, 60)
    engine.submit(0, 4, 100, 1)
    events, _ = run_to_end(engine)
    assert engine.preemptions > 0
    ends = times(events, FINISHED)
    assert ends[1] <= ends[2] <= ends[3] <= ends[4]
    said = [value for _, kind, request_id, value in events if (kind, request_id) == (TOKENS, 3)]
    assert said == list(range(1, 61))  # recomputed tokens are not said again


def test_shared_blocks_occupy_memory_once_and_cached_ones_count_as_free():
    engine = new_engine()
    hashes = packed(range(1, 11))
    for request_id in range(5):
        engine.submit(0, request_id, 161, 10, hashes)
    now = engine.next_event_ns()
    engine.advance(now)
    assert engine.kv_usage_ratio(now) == pytest.approx((10 + 5) / 100)
    _, now = run_to_end(engine)
    assert engine.kv_usage_ratio(now) == 0.0
    assert engine.cached_prefix_tokens(hashes, 161) == 160


def test_generated_blocks_can_be_found_by_the_next_turn():
    engine = new_engine()
    hashes = packed(range(1, 9))  # 128 tokens: prompt 64, answer 64
    engine.submit(0, 1, 64, 64, hashes)
    _, now = run_to_end(engine)
    # the KV of the last generated token is never computed
    assert engine.cached_prefix_tokens(hashes, 129) == 112
    engine.submit(now, 2, 129, 1, hashes)
    assert run_to_end(engine)[0][0][3] == 112


def test_wide_hashes_stand_for_all_blocks_they_cover():
    engine = new_engine()
    wide = packed([11, 22])
    engine.submit(0, 1, 100, 1, wide, 64)
    run_to_end(engine)
    assert engine.cached_prefix_tokens(wide, 100, 64) == 96
    assert engine.cached_prefix_tokens(packed([11, 33]), 100, 64) == 64
    assert engine.cached_prefix_tokens(packed([22, 11]), 100, 64) == 0
    with pytest.raises(ValueError, match="multiple of 16"):
        engine.submit(engine.next_event_ns() - 1, 2, 100, 1, wide, 24)


def test_the_least_recently_freed_block_is_evicted_first_and_a_prompt_from_its_end():
    engine = new_engine(kv_tokens=16 * 11)
    old, new = packed(range(1, 6)), packed(range(101, 106))
    now = 0
    for request_id, hashes in enumerate((old, new)):
        engine.submit(now, request_id, 80, 1, hashes)
        _, now = run_to_end(engine)
    engine.submit(now, 3, 48, 1)  # takes three blocks of the older prompt
    run_to_end(engine)
    assert engine.cached_prefix_tokens(old, 81) == 32
    assert engine.cached_prefix_tokens(new, 81) == 80


def test_a_frozen_engine_shows_its_numbers_and_goes_on_where_it_stopped():
    engine = new_engine()
    engine.submit(0, 1, 100, 20)
    reference = new_engine()
    reference.submit(0, 1, 100, 20)
    reference_end = run_to_end(reference)[1]
    engine.advance(20 * MS)
    engine.freeze(20 * MS)
    assert engine.next_event_ns() == NEVER_NS
    assert engine.advance(500 * MS) == []
    assert engine.running_count == 1
    engine.submit(600 * MS, 2, 10, 1)
    engine.unfreeze(1020 * MS)
    events, _ = run_to_end(engine)
    ends = times(events, FINISHED)
    # the newcomer's prefill lengthens one step, the pause everything
    assert ends[1] == reference_end + 1000 * MS + 10 * 30 * US


def test_a_killed_engine_loses_requests_and_cache_and_restarts_with_new_counters():
    engine = new_engine(max_num_seqs=1)
    hashes = packed(range(1, 7))
    for request_id in (5, 3, 9):
        engine.submit(0, request_id, 100, 20, hashes)
    engine.advance(30 * MS)
    assert engine.kill(30 * MS) == [5, 3, 9]
    assert not engine.alive
    assert engine.next_event_ns() == NEVER_NS
    with pytest.raises(RuntimeError, match="dead"):
        engine.submit(30 * MS, 7, 1, 1)
    assert engine.restart(40 * MS) == []
    assert (engine.generation, engine.steps, engine.generated_tokens) == (1, 0, 0)
    assert engine.kv_usage_ratio(40 * MS) == 0.0
    engine.submit(40 * MS, 7, 100, 1, hashes)
    assert run_to_end(engine)[0][0][3] == 0


def test_heat_slows_steps_gradually():
    engine = new_engine(decode_ns=0.0, context_ns=0.0, detailed=True)
    engine.set_heat(0, 3.0, 100 * MS)
    engine.submit(0, 1, 1, 40)
    events, _ = run_to_end(engine)
    ends = [time_ns for time_ns, kind, *_ in events if kind == TOKENS]
    gaps = [after - before for before, after in pairwise(ends)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 6 * MS
    assert gaps[-1] == 15 * MS


def test_impossible_requests_and_settings_say_what_was_wanted():
    engine = new_engine()
    with pytest.raises(ValueError, match="2000 tokens do not fit"):
        engine.submit(0, 1, 1001, 1000)
    with pytest.raises(ValueError, match="1 or more"):
        engine.submit(0, 1, 0, 1)
    engine.advance(100)
    with pytest.raises(ValueError, match="lies before"):
        engine.advance(99)
    for bad in ({"kv_tokens": 16}, {"max_num_seqs": 0}, {"noise_ratio": 1.0}, {"base_ns": -1e9}):
        with pytest.raises(ValueError, match="wanted"):
            Engine(**{**COSTS, "kv_tokens": 1600, **bad})


def test_the_journal_agrees_with_the_cache():
    engine = new_engine(kv_tokens=16 * 40, detailed=True)
    rng, present, entered, now = random.Random(3), set(), 0, 0
    assert engine.journal_blocks() == ([], 0)
    asked = []
    for number in range(60):
        hashes = chain(rng.randrange(4), rng.randrange(12), number, 12)
        asked.append(hashes)
        now += rng.randrange(400 * MS)
        engine.advance(now)
        engine.submit(now, number, 16 * 10, 16 * 2, packed(hashes))
        journal, tokens = engine.journal_blocks()
        entered += tokens
        for value, is_stored in journal:
            assert is_stored != (value in present)
            (present.add if is_stored else present.discard)(value)
        for chained in asked:
            leading = next((i for i, h in enumerate(chained) if h not in present), len(chained))
            found = engine.cached_prefix_tokens(packed(chained), 16 * 13)
            assert found == 16 * leading
    assert entered > 16 * 100 and len(present) <= 40
