"""The fast engine model against the naive one: every event, counter and gauge, at any time."""

from __future__ import annotations

import pytest
from engine_helpers import COSTS, MS, chain, packed
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_engine import NaiveEngine, Sequence

from headrace.mock.engine_model import FINISHED, FIRST_TOKEN, NEVER_NS, Engine

CONFIGS = st.fixed_dictionaries(
    {
        "kv_tokens": st.one_of(st.integers(8, 40), st.integers(90, 160)).map(lambda n: n * 4),
        "block_tokens": st.just(4),
        "max_num_seqs": st.integers(1, 5),
        "max_num_batched_tokens": st.sampled_from([5, 8, 64]),
        "swap_ns": st.sampled_from([0.0, 1000.0]),
        "noise_ratio": st.sampled_from([0.0, 0.2]),
        "seed": st.integers(0, 2**64 - 1),
    }
)
STEP_END = -1  # not a time to wait, but until the current step ends
SUBMIT = st.tuples(
    st.just("submit"), st.integers(1, 24), st.integers(1, 30), st.integers(0, 2), st.integers(0, 8)
)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, STEP_END, 1 * MS, 5 * MS, 7 * MS, 40 * MS, 300 * MS]),
        st.one_of(
            SUBMIT,
            SUBMIT,
            st.tuples(st.just("abort"), st.integers(0, 30)),
            st.tuples(st.just("slow"), st.sampled_from([0.5, 1.0, 3.0])),
            st.tuples(st.just("next")),
            st.tuples(st.just("advance")),
        ),
    ),
    min_size=1,
    max_size=40,
)


class Pair:
    """The fast engine and its oracle, driven alike."""

    def __init__(self, config, detailed):
        self.fast = Engine(**COSTS, **config, detailed=detailed)
        self.naive = NaiveEngine(**COSTS, **config)
        self.detailed = detailed
        self.handles: list[tuple[int, Sequence]] = []
        self.room = (config["kv_tokens"] // 4 - 1) * 4
        self.now = 0

    def wait(self, wait_ns):
        if wait_ns != STEP_END:
            self.now += wait_ns
        elif self.naive.step_end is not None:
            self.now = self.naive.step_end

    def do(self, operation):
        name, *values = operation
        getattr(self, name)(*values)
        self.compare()

    def submit(self, prompt, output, group, shared):
        if prompt + output - 1 > self.room:
            return
        request_id = len(self.handles)
        hashes = chain(group, shared, request_id, (prompt + output) // 4)
        handle = self.fast.submit(self.now, request_id, prompt, output, packed(hashes))
        twin = self.naive.submit(self.now, request_id, prompt, output, hashes)
        self.handles.append((handle, twin))

    def abort(self, which):
        if self.handles:
            handle, twin = self.handles[which % len(self.handles)]
            assert self.fast.abort(self.now, handle) == self.naive.abort(self.now, twin)

    def slow(self, factor):
        self.fast.set_slow(self.now, factor)
        self.naive.run_until(self.now)
        self.naive.slow = factor

    def next(self):
        expected = self.naive.next_event()
        found = self.fast.next_event_ns()
        if expected is None:
            assert found == NEVER_NS
        elif self.detailed:
            assert found == expected
        else:
            assert found >= expected
            assert found < NEVER_NS

    def advance(self):
        pass

    def compare(self):
        self.naive.run_until(self.now)
        events = self.fast.advance(self.now)
        wanted = self.naive.events
        self.naive.events = []
        if not self.detailed:
            wanted = [event for event in wanted if event[1] in (FIRST_TOKEN, FINISHED)]
        assert events == wanted
        assert self.fast.running_count == len(self.naive.running)
        assert self.fast.waiting_count == len(self.naive.waiting)
        used = 1 - len(self.naive.memory.free) / self.naive.memory.count
        assert self.fast.kv_usage_ratio(self.now) == pytest.approx(used, abs=1e-12)
        counters = ("preemptions", "generated_tokens", "steps")
        for name in counters:
            assert getattr(self.fast, name) == getattr(self.naive, name), name
        assert self.fast.prefix_queries_tokens == self.naive.queries
        assert self.fast.prefix_hits_tokens == self.naive.hits


@settings(max_examples=300, deadline=None)
@given(config=CONFIGS, operations=OPERATIONS, detailed=st.booleans())
def test_the_fast_engine_equals_the_step_by_step_one(config, operations, detailed):
    pair = Pair(config, detailed)
    for wait_ns, operation in operations:
        pair.wait(wait_ns)
        pair.do(operation)
    while (end_ns := pair.fast.next_event_ns()) != NEVER_NS:
        pair.next()
        pair.now = end_ns
        pair.compare()
    assert not pair.naive.running
    assert not pair.naive.waiting
