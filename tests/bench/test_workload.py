"""Workloads: seeded, endless, and honest about what prompts share."""

import random
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench import workload
from headrace.bench.workload import Chats, Lengths, Prefixes, Request, Segment

LENGTHS = Lengths(input_tokens=100, output_tokens=20)


def take(jobs, number):
    return list(islice(jobs, number))


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: workload.synthetic(rng, Lengths(100, 20, spread=0.5)),
        lambda rng: workload.shared_prefix(rng, LENGTHS, Prefixes()),
        lambda rng: workload.multi_turn(rng, LENGTHS, Chats(users=5, turns=3)),
    ],
)
def test_the_same_seed_gives_the_same_jobs(make):
    assert take(make(random.Random(7)), 50) == take(make(random.Random(7)), 50)
    assert take(make(random.Random(7)), 50) != take(make(random.Random(8)), 50)


def test_synthetic_prompts_share_nothing():
    keys = [job.prompt[0].key for job in take(workload.synthetic(random.Random(1), LENGTHS), 500)]
    assert len(set(keys)) == 500


def test_spread_lengths_keep_their_mean():
    jobs = take(workload.synthetic(random.Random(1), Lengths(1000, 20, spread=0.7)), 4000)
    assert sum(job.prompt_tokens for job in jobs) / 4000 == pytest.approx(1000, rel=0.05)
    assert len({job.prompt_tokens for job in jobs}) > 500


def test_popular_system_prompts_follow_zipf():
    prefixes = Prefixes(number=10, tokens=300, zipf=1.0)
    jobs = take(workload.shared_prefix(random.Random(1), LENGTHS, prefixes), 5000)
    counts = [n for _, n in Counter(job.prompt[0].key for job in jobs).most_common()]
    assert len(counts) == 10
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.2)
    assert {job.prompt[0].role for job in jobs} == {"system"}
    assert {job.prompt_tokens for job in jobs} == {400}


def test_each_turn_of_a_chat_extends_the_one_before():
    jobs = take(workload.multi_turn(random.Random(1), LENGTHS, Chats(users=3, turns=4)), 200)
    last = {}
    for job in jobs:
        if job.session in last:
            before = last[job.session]
            assert job.prompt[: len(before)] == before
            assert [s.role for s in job.prompt[len(before) :]] == ["assistant", "user"]
        else:
            assert len(job.prompt) == 1
        last[job.session] = job.prompt
    assert max(len(prompt) for prompt in last.values()) == 2 * 4 - 1


def test_a_schedule_ends_with_the_shorter_side():
    jobs = workload.synthetic(random.Random(1), LENGTHS)
    requests = list(workload.schedule([0.5, 1.5], jobs))
    assert [r.at_s for r in requests] == [0.5, 1.5]


def test_acceleration_divides_times_and_multiplies_the_rate():
    job = take(workload.synthetic(random.Random(1), LENGTHS), 1)[0]
    requests = [Request(float(at), job) for at in range(11)]
    assert workload.mean_rate_per_s(requests) == 1.0
    assert workload.mean_rate_per_s(list(workload.accelerate(requests, 4))) == 4.0


PROMPTS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=8)


def tokens_of(prompt):
    """The oracle's view: a prompt as its tokens, one by one."""
    return [(s.key, offset) for s in prompt for offset in range(s.tokens)]


@given(PROMPTS, PROMPTS, st.integers(1, 20))
def test_block_keys_are_equal_exactly_where_tokens_are(first, second, block_tokens):
    first = [Segment(key, tokens) for key, tokens in first]
    second = [Segment(key, tokens) for key, tokens in second]
    a, b = tokens_of(first), tokens_of(second)
    keys_a = workload.block_keys(first, block_tokens)
    keys_b = workload.block_keys(second, block_tokens)
    assert len(keys_a) == len(a) // block_tokens
    for index, (x, y) in enumerate(zip(keys_a, keys_b, strict=False), 1):
        end = index * block_tokens
        assert (x == y) == (a[:end] == b[:end])
