"""A small engine on the step-time law, for tests: vLLM's scheduler, without a network."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from headrace.plan.queueing import Traffic
from headrace.plan.steplaw import StepLaw


@dataclass
class Result:
    ttft_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)

    def quantile(self, values: list[float], percentile: float) -> float:
        return sorted(values)[min(len(values) - 1, int(percentile * len(values)))]

    def p95(self) -> tuple[float, float]:
        return self.quantile(self.ttft_s, 0.95), self.quantile(self.tpot_s, 0.95)


def _length(rng: random.Random, mean: float, cv: float) -> int:
    if cv == 0:
        return max(1, round(mean))
    # gamma with that mean and coefficient of variation
    shape = 1 / cv**2
    return max(1, round(rng.gammavariate(shape, mean / shape)))


def simulate(law: StepLaw, traffic: Traffic, requests: int, seed: int = 0) -> Result:
    """Run `requests` through one replica; decodes first, then prompts first come first served in
    chunks, admitted while places and KV last; the youngest is preempted when KV runs out."""
    rng = random.Random(seed)
    arrivals = []
    now = 0.0
    for _ in range(requests):
        now += rng.expovariate(traffic.rate_per_s)
        prompt = _length(rng, traffic.input_tokens, traffic.input_cv)
        output = _length(rng, traffic.output_tokens, traffic.output_cv)
        arrivals.append((now, prompt, output))
    arrivals.reverse()

    out = Result()
    clock, step_index = 0.0, 0
    waiting: list[list[float]] = []  # [arrival, prompt, output, prefill left, first token or 0]
    running: list[tuple[int, int, list[float]]] = []  # heap of (last step, order, request)
    prefilling: list[float] | None = None
    used = 0  # KV tokens
    context = 0  # context tokens of decoding sequences
    order = 0
    gone: set[int] = set()
    live = 0
    while arrivals or waiting or live or prefilling is not None:
        if not live and not waiting and prefilling is None:
            clock = max(clock, arrivals[-1][0])
        while arrivals and arrivals[-1][0] <= clock:
            at, prompt, output = arrivals.pop()
            todo = max(1, round(prompt * (1 - traffic.hit_ratio)))
            waiting.append([at, prompt, output, todo, 0.0])
        budget = law.batched_tokens - live
        prefill_tokens = 0
        done = []
        while budget > 0:
            if prefilling is None:
                if not waiting or live + len(done) >= law.max_num_seqs:
                    break
                if used + waiting[0][1] + live > law.kv_capacity_tokens:
                    break
                prefilling = waiting.pop(0)
                used += int(prefilling[1])
            take = min(budget, int(prefilling[3]))
            prefilling[3] -= take
            budget -= take
            prefill_tokens += take
            if prefilling[3] > 0:
                break
            done.append(prefilling)
            prefilling = None
        clock += law.step_s(prefill_tokens, live, context)
        step_index += 1
        used += live
        context += live
        while running and running[0][0] <= step_index:
            last, number, request = heapq.heappop(running)
            if number in gone:
                gone.discard(number)
                continue
            live -= 1
            length = int(request[1] + request[2])
            context -= length
            used -= length
            if request[2] > 1:
                out.tpot_s.append((clock - request[4]) / (request[2] - 1))
        for request in done:
            if not request[4]:
                request[4] = clock
                out.ttft_s.append(clock - request[0])
            if request[2] <= 1:
                used -= int(request[1])
                continue
            order += 1
            live += 1
            context += int(request[1]) + 1
            used += 1
            heapq.heappush(running, (step_index + int(request[2]) - 1, order, request))
        while used > law.kv_capacity_tokens and live > 1:
            last, number, request = max(
                (r for r in running if r[1] not in gone), key=lambda r: r[1]
            )
            gone.add(number)
            live -= 1
            left = last - step_index
            held = int(request[1] + request[2]) - left
            context -= held
            used -= held
            # recomputed with what it has generated so far
            waiting.insert(0, [request[0], held, left, held, request[4]])
    return out
