"""Cost of a decision, of a lease and of a token, in C and as called from Python.

    python -m pytest benchmarks/bench_core.py --benchmark-enable

`pick` runs a decision (admission, prefix lookup if asked, score, pick) a thousand times inside one
call, so `extra_info.ns_each` is the time of C; `call` is one decision per Python call. Targets:
pick of cost_aware at most 1 µs over 128 slots and 8 µs over 1,024; a prompt of 64 blocks at most
3 µs more.
"""

import random

import pytest
from route_rig import Rig, request

from headrace.core.balancer import POLICIES

ROUNDS = 1000
SLOTS = (8, 128, 1024)
BLOCKS = 64


def busy_rig(slots, policy, known_prefix=False):
    """A fleet with load everywhere and, if asked, a prompt that every second replica knows."""
    rig = Rig(slots, prefix_bytes=64 << 20, policy=policy)
    rng = random.Random(1)
    for slot in range(slots):
        rig.row(slot, foreign_seqs=rng.random() * 20, kv_capacity_tokens=400_000)
    rig.leases = [rig.lease(prompt_tokens=300) for _ in range(slots)]
    keys = [rng.getrandbits(64) for _ in range(BLOCKS)]
    if known_prefix:
        for slot in range(0, slots, 2):
            for other in range(slots):
                rig.row(other, eligible=other == slot)
            rig.lease(prefix=keys, prompt_tokens=4000).cancel(rig.now)
        for slot in range(slots):
            rig.row(slot, foreign_seqs=rng.random() * 20, kv_capacity_tokens=400_000)
        rig.now += 10_000_000
    rig.asked = request(prefix=keys if known_prefix else (), session=b"session")
    rig.asked.prompt_tokens = 4000
    return rig


def per_round(benchmark, rounds):
    benchmark.extra_info["rounds"] = rounds
    if benchmark.stats:
        benchmark.extra_info["ns_each"] = round(benchmark.stats.stats.median / rounds * 1e9, 1)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slots", SLOTS)
def test_pick(benchmark, slots, policy):
    rig = busy_rig(slots, policy)
    assert benchmark(rig.balancers[0].choose, rig.asked, rig.now, ROUNDS) is not None
    per_round(benchmark, ROUNDS)


@pytest.mark.parametrize("slots", (8, 128))
def test_pick_with_a_prompt_of_64_blocks(benchmark, slots):
    rig = busy_rig(slots, "cost_aware", known_prefix=True)
    assert benchmark(rig.balancers[0].choose, rig.asked, rig.now, ROUNDS) is not None
    per_round(benchmark, ROUNDS)


def test_pick_with_64_blocks_that_nobody_knows(benchmark):
    rig = busy_rig(128, "cost_aware")
    rig.asked.set_prefix([random.getrandbits(64) for _ in range(BLOCKS)])
    assert benchmark(rig.balancers[0].choose, rig.asked, rig.now, ROUNDS) is not None
    per_round(benchmark, ROUNDS)


@pytest.mark.parametrize("slots", SLOTS)
def test_call(benchmark, slots):
    rig = busy_rig(slots, "cost_aware")
    benchmark(rig.balancers[0].choose, rig.asked, rig.now)
    per_round(benchmark, 1)


def test_a_lease_from_open_to_end(benchmark):
    rig = busy_rig(8, "cost_aware")
    rig.asked.set_prefix([])
    balancer, asked = rig.balancers[0], rig.asked

    def live():
        _, lease = balancer.open(asked, rig.now)
        lease.finish(rig.now, 100, 10)

    benchmark(live)
    per_round(benchmark, 1)


def test_a_token(benchmark):
    """Of the stream that is followed: the dearest kind, with all that is learned from a gap."""
    rig = Rig(8)
    lease = rig.lease()
    now = iter(range(rig.now, rig.now + (1 << 60), 20_000_000))

    def hundred():
        for _ in range(100):
            lease.tokens(next(now))

    benchmark(hundred)
    per_round(benchmark, 100)
