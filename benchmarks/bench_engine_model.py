"""Speed of the engine model, with nothing around it but a heap of next events.

    python -m pytest benchmarks/bench_engine_model.py --benchmark-enable

A row is a fleet under Poisson load with the router left out: replicas are drawn at random, half of
the prompt blocks are shared by 50 groups. `us_per_request` stands under extra_info.
"""

import array
import heapq
import random

import pytest

from headrace.mock.engine_model import NEVER_NS
from headrace.mock.presets import PRESETS, engine_of

HASH_TOKENS = 512
FLEETS = {  # replicas, requests, prompt tokens, output tokens, requests a second and replica
    "8x2000+200": (8, 20_000, 2000, 200, 8.0),
    "8x8000+200-full": (8, 10_000, 8000, 200, 3.0),
    "128x2000+200": (128, 50_000, 2000, 200, 8.0),
}


def requests(count: int, rate: float, prompt: int, output: int) -> list[tuple]:
    source = random.Random(1)
    now_ns, made = 0, []
    for request_id in range(count):
        now_ns += int(source.expovariate(rate) * 1e9)
        tokens = source.randint(prompt // 2, prompt * 3 // 2)
        blocks = tokens // HASH_TOKENS + 1
        group, own = source.randrange(50) << 32, (request_id + 1) << 40
        hashes = array.array("Q", [(group if i < blocks // 2 else own) + i for i in range(blocks)])
        answer = source.randint(output // 2, output * 3 // 2)
        made.append((now_ns, request_id, tokens, answer, hashes.tobytes()))
    return made


def drive(engines: list, work: list[tuple]) -> int:
    """Hand out all requests and run to the end; how many finished."""
    source = random.Random(2)
    due: list[tuple[int, int]] = []
    next_ns = [NEVER_NS] * len(engines)

    def look(which: int) -> None:
        found = engines[which].next_event_ns()
        if found != next_ns[which]:
            next_ns[which] = found
            if found != NEVER_NS:
                heapq.heappush(due, (found, which))

    def let_pass(until_ns: int) -> None:
        while due and due[0][0] <= until_ns:
            time_ns, which = heapq.heappop(due)
            if next_ns[which] == time_ns:
                engines[which].advance(time_ns)
                look(which)

    for request in work:
        let_pass(request[0])
        which = source.randrange(len(engines))
        engines[which].submit(*request, HASH_TOKENS)
        look(which)
    let_pass(NEVER_NS - 1)
    return sum(engine.finished for engine in engines)


@pytest.mark.parametrize("name", FLEETS)
def test_fleet(benchmark, name):
    replicas, count, prompt, output, rate = FLEETS[name]
    work = requests(count, rate * replicas, prompt, output)
    preset = PRESETS["llama3-8b-h100"]

    def fresh():
        return ([engine_of(preset, seed=i) for i in range(replicas)], work), {}

    finished = benchmark.pedantic(drive, setup=fresh, rounds=3)
    assert finished == count
    if benchmark.stats:
        seconds = benchmark.stats.stats.median
        benchmark.extra_info["us_per_request"] = round(1e6 * seconds / count, 1)
