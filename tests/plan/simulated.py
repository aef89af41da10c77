"""One replica under a stream of requests, run step by step on the engine of `headrace sim`."""

from __future__ import annotations

import array
import random

from headrace.mock.engine_model import FINISHED, FIRST_TOKEN, NEVER_NS, Engine
from headrace.plan.demand import Traffic
from headrace.plan.steplaw import StepLaw

BLOCK_TOKENS = 16
COMMON = 1 << 20  # hashes of the shared prefix; 0 is a block that nobody shares


def p95_latencies(
    law: StepLaw, traffic: Traffic, requests: int = 4000, seed: int = 1
) -> tuple[float, float]:
    """TTFT and TPOT at the 95th percentile, seconds; arrivals are Poisson, lengths gamma."""
    engine = engine_of(law, seed)
    rng = random.Random(seed)
    arrival_ns, length, first_ns = {}, {}, {}
    ttft_s, tpot_s = [], []

    def note(events: list[tuple[int, int, int, int]]) -> None:
        for at_ns, kind, request, tokens in events:
            if kind == FIRST_TOKEN:
                first_ns[request] = at_ns
                ttft_s.append((at_ns - arrival_ns[request]) / 1e9)
            elif kind == FINISHED and tokens > 1:
                tpot_s.append((at_ns - first_ns[request]) / 1e9 / (tokens - 1))

    now_ns = 0
    for request in range(requests):
        now_ns += int(rng.expovariate(traffic.rate_per_s) * 1e9)
        while (event_ns := engine.next_event_ns()) <= now_ns:
            note(engine.advance(event_ns))
        prompt = drawn(rng, traffic.input_tokens, traffic.input_cv)
        length[request] = drawn(rng, traffic.output_tokens, traffic.output_cv)
        arrival_ns[request] = now_ns
        engine.submit(now_ns, request, prompt, length[request], hashes(traffic, prompt))
    while (event_ns := engine.next_event_ns()) != NEVER_NS:
        note(engine.advance(event_ns))
    return quantile(ttft_s, 0.95), quantile(tpot_s, 0.95)


def engine_of(law: StepLaw, seed: int) -> Engine:
    """The engine that obeys the law."""
    return Engine(
        base_ns=law.base_s * 1e9,
        prefill_ns=law.per_prefill_token_s * 1e9,
        decode_ns=law.per_sequence_s * 1e9,
        context_ns=law.per_context_token_s * 1e9,
        kv_tokens=law.kv_capacity_tokens,
        block_tokens=BLOCK_TOKENS,
        max_num_seqs=law.max_num_seqs,
        max_num_batched_tokens=law.batched_tokens,
        seed=seed,
    )


def drawn(rng: random.Random, mean: float, cv: float) -> int:
    """A length of at least one token."""
    return max(1, round(mean if cv == 0 else rng.gammavariate(cv**-2, mean * cv**2)))


def hashes(traffic: Traffic, prompt_tokens: int) -> bytes:
    """One hash a block, those of the shared share common to all requests."""
    shared = round(prompt_tokens * traffic.shared_ratio) // BLOCK_TOKENS
    chain = [COMMON + n for n in range(shared)] + [0] * (prompt_tokens // BLOCK_TOKENS - shared)
    return array.array("Q", chain).tobytes()


def quantile(values: list[float], share: float) -> float:
    """The smallest value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
