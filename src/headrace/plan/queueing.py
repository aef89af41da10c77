"""How one replica answers a stream of requests: a batch server with a state-dependent rate.

With n sequences decoding and prompts arriving at rate λ, the step-time law gives the mean step

    s(n) = (base + (b + c·context)·n) / (1 − a·λ·u)            u: prompt tokens not found in the
    cache

Every sequence leaves after its o output tokens, so the replica finishes n / (o·s(n)) requests a
second. The number of sequences is then a birth-death chain whose stationary distribution is a
product (processor sharing does not depend on the shape of the lengths); at the largest batch N the
rest waits, and the tail is geometric.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from headrace.plan.demand import Traffic
from headrace.plan.steplaw import StepLaw

# Share of the KV cache that a running batch fills before it starts to preempt sequences.
_KV_FILL_RATIO = 0.95
_ONE_SIGMA = NormalDist().cdf(1)


def largest_batch(law: StepLaw, traffic: Traffic) -> int:
    """Sequences that run at once when the replica is full; 0 when not one fits.

    The least of `max_num_seqs`, of what the KV cache holds, and of what the token budget of a step
    can replace: n sequences end at n/o a step and bring n·u/o prompt tokens.
    """
    if law.kv_capacity_tokens < traffic.input_tokens + traffic.output_tokens:
        return 0
    by_cache = _sequences_in_cache(
        law.kv_capacity_tokens * _KV_FILL_RATIO / traffic.kv_tokens, traffic
    )
    by_budget = law.batched_tokens / (1 + traffic.uncached_tokens / traffic.output_tokens)
    return max(1, int(min(law.max_num_seqs, by_cache, by_budget)))


def _sequences_in_cache(mean: float, traffic: Traffic) -> float:
    """Sequences that nearly always fit where `mean` alike ones would: n + cv·√n = mean."""
    spread = max(traffic.input_cv, traffic.output_cv)
    return (math.sqrt(mean + spread**2 / 4) - spread / 2) ** 2


def full_step_s(law: StepLaw, traffic: Traffic, sequences: float) -> float:
    """Mean step with that many sequences when every one that ends is replaced at once."""
    prompts = sequences * traffic.uncached_tokens / traffic.output_tokens
    return law.step_s(prompts, sequences, sequences * traffic.context_tokens)


def saturation_rate_per_s(law: StepLaw, traffic: Traffic) -> float:
    """Requests a second beyond which the queue grows without end; 0 when nothing fits."""
    batch = largest_batch(law, traffic)
    if batch == 0:
        return 0.0
    return batch / (traffic.output_tokens * full_step_s(law, traffic, batch))


class Chain:
    """The stationary number of sequences: product form up to the largest batch, then geometric.

    `pool` replicas behind a router that sends to the least loaded share every fluctuation: each
    sees its √pool-th part, and arrivals that are dealt out evenly (Poisson for a pool of one).
    """

    def __init__(self, law: StepLaw, traffic: Traffic, pool: int = 1) -> None:
        self.pool = pool
        self.batch = largest_batch(law, traffic)
        busy_ratio = law.per_prefill_token_s * traffic.rate_per_s * traffic.uncached_tokens
        self.prefill_ratio = min(0.999, busy_ratio)  # of the time
        self.slope_s = law.per_sequence_s + law.per_context_token_s * traffic.context_tokens
        self.work_cv2 = 1 / pool + traffic.input_cv**2  # of the prompts' work, as it comes in
        self.spread_ratio = self._spread_ratio()
        full_s = full_step_s(law, traffic, self.batch)
        self.drain_per_s = self.batch / (traffic.output_tokens * full_s)
        # A backlog cannot bring more prompts a second than sequences end.
        self.step_s = [
            min(full_s, (law.base_s + self.slope_s * n) / (1 - self.prefill_ratio))
            for n in range(self.batch)
        ] + [full_s]
        self.share = self._stationary(traffic)
        self.queued_ratio = self.share[-1]
        self.mean = sum(n * p for n, p in enumerate(self.share))
        self.mean_step_s = sum(s * p for s, p in zip(self.step_s, self.share, strict=True))

    def _spread_ratio(self) -> float:
        """How much wider than the chain's the deviations are.

        Prompts come in lumps that hold up every sequence: by the linear-noise approximation the
        variance of the batch grows by half the second moment of (prefill time ÷ decode time). A
        pool divides it.
        """
        lumps = self.prefill_ratio / (1 - self.prefill_ratio)
        return math.sqrt((1 + lumps**2 * self.work_cv2 / 2) / self.pool)

    def _stationary(self, traffic: Traffic) -> list[float]:
        """Share of the time with 0, 1, … sequences; the last one is a full batch, queue or not.

        In logarithms: the products of a long chain leave the range of a float.
        """
        offered = max(traffic.rate_per_s, 1e-300) * traffic.output_tokens
        logs = [0.0]
        for n in range(1, self.batch + 1):
            logs.append(logs[-1] + math.log(offered * self.step_s[n] / n))
        peak = max(logs)
        weights = [math.exp(log - peak) for log in logs]
        weights[-1] /= 1 - traffic.rate_per_s / self.drain_per_s
        total = sum(weights)
        return [weight / total for weight in weights]

    def deviation_of_sequences(self) -> float:
        """Standard deviation of the batch."""
        variance = sum((n - self.mean) ** 2 * p for n, p in enumerate(self.share))
        return math.sqrt(variance) * self.spread_ratio

    def deviation_of_step_s(self) -> float:
        """Standard deviation of the step as a running sequence sees it."""
        low, high = self.seen_step_s(1 - _ONE_SIGMA), self.seen_step_s(_ONE_SIGMA)
        return (high - low) / 2 * self.spread_ratio

    def seen_step_s(self, percentile: float) -> float:
        """Quantile of the step as a running sequence sees it: a state counts by its sequences."""
        total = sum(n * p for n, p in enumerate(self.share)) or 1.0
        reached = 0.0
        for n, p in enumerate(self.share):
            reached += n * p / total
            if reached >= percentile:
                return self.step_s[max(n, 1)] if n < self.batch else self.step_s[-1]
        return self.step_s[-1]
