"""How one replica answers a stream of requests: a batch server with a state-dependent rate.

With n sequences decoding and prompts arriving at rate λ, the step-time law gives the mean step

    s(n) = (base + (b + c·context)·n) / (1 − a·λ·u)            u: prompt tokens not found in the
    cache

Every sequence leaves after its o output tokens, so the replica finishes n / (o·s(n)) requests a
second. The number of sequences is then a birth-death chain whose stationary distribution is a
product (processor sharing does not depend on the shape of the lengths); at the largest batch N the
rest waits, and the tail is geometric. TPOT is s(n) as the requests see it; TTFT is the rest of the
step under way, the prompts that come with ours, our own prefill, and the wait for a place.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import msgspec

from headrace.plan.steplaw import StepLaw

# Share of the KV cache that a running batch fills before it starts to preempt sequences.
_KV_FILL_RATIO = 0.95
# Bisection of the rate: 2^-30 of the range is below any figure that is shown.
_BISECTION_STEPS = 30
_ONE_SIGMA = NormalDist().cdf(1)
# Beyond this share of the saturation rate waiting times say more about the formula than the engine.
MAX_UTILIZATION = 0.99


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Requests: rate a second, and mean and coefficient of variation of the lengths in tokens.

    `hit_ratio` of the prompt tokens are found in the prefix cache; `shared_ratio` of them are
    common to the requests that run at the same time, and so occupy the KV cache once. Both 0–1.
    """

    rate_per_s: float
    input_tokens: float
    output_tokens: float
    input_cv: float = 0.0
    output_cv: float = 0.0
    hit_ratio: float = 0.0
    shared_ratio: float = 0.0

    def at(self, rate_per_s: float) -> Traffic:
        """The same requests at another rate."""
        return msgspec.structs.replace(self, rate_per_s=rate_per_s)

    @property
    def uncached_tokens(self) -> float:
        """Prompt tokens that have to be computed, at least one."""
        return max(1.0, self.input_tokens * (1 - self.hit_ratio))

    @property
    def generated_tokens(self) -> float:
        """Mean tokens generated so far by a running sequence: long ones are seen for longer."""
        return self.output_tokens * (1 + self.output_cv**2) / 2

    @property
    def context_tokens(self) -> float:
        """Mean context that a running sequence reads in a step."""
        return self.input_tokens + self.generated_tokens

    @property
    def kv_tokens(self) -> float:
        """Mean tokens of KV cache that a running sequence holds for itself."""
        return self.input_tokens * (1 - self.shared_ratio) + self.generated_tokens


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Promised latencies, seconds, at `percentile`; None: none."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    percentile: float = 0.95


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica gives at one rate; `utilization` is the share of its saturation rate."""

    utilization: float
    sequences: float
    step_s: float
    ttft_s: float
    tpot_s: float
    queued_ratio: float  # of the requests that find no place in the batch

    def meets(self, slo: Slo) -> bool:
        """Whether both promises hold."""
        ttft_ok = slo.ttft_s is None or self.ttft_s <= slo.ttft_s
        return ttft_ok and (slo.tpot_s is None or self.tpot_s <= slo.tpot_s)


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


def latency_at(law: StepLaw, traffic: Traffic, percentile: float = 0.95) -> Latency | None:
    """TTFT and TPOT of one replica at that percentile (0–1); None when it cannot keep up."""
    limit = saturation_rate_per_s(law, traffic)
    if limit <= 0 or traffic.rate_per_s > MAX_UTILIZATION * limit:
        return None
    chain = _Chain(law, traffic)
    return Latency(
        utilization=traffic.rate_per_s / limit,
        sequences=chain.mean,
        step_s=chain.mean_step_s,
        ttft_s=_ttft_s(law, traffic, chain, percentile),
        tpot_s=_tpot_s(law, traffic, chain, percentile),
        queued_ratio=chain.queued_ratio,
    )


def capacity_per_s(
    law: StepLaw, traffic: Traffic, slo: Slo, max_utilization: float = MAX_UTILIZATION
) -> float:
    """The highest rate of such requests at which one replica keeps the SLO; 0 when at none."""
    low, high = 0.0, saturation_rate_per_s(law, traffic) * min(max_utilization, MAX_UTILIZATION)
    if high <= 0 or _keeps(law, traffic.at(high), slo):
        return high
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _keeps(law, traffic.at(middle), slo) else (low, middle)
    # A rate of next to nothing is an SLO that not even a lone request keeps.
    return low if low > high * 1e-6 and low * 1e6 > 1 else 0.0


def _keeps(law: StepLaw, traffic: Traffic, slo: Slo) -> bool:
    found = latency_at(law, traffic, slo.percentile)
    return found is not None and found.meets(slo)


class _Chain:
    """The stationary number of sequences: product form up to the largest batch, then geometric."""

    def __init__(self, law: StepLaw, traffic: Traffic) -> None:
        rate, output = traffic.rate_per_s, traffic.output_tokens
        self.batch = largest_batch(law, traffic)
        self.prefill_ratio = min(
            0.999, law.per_prefill_token_s * rate * traffic.uncached_tokens
        )  # of the time
        self.slope_s = law.per_sequence_s + law.per_context_token_s * traffic.context_tokens
        full_s = full_step_s(law, traffic, self.batch)
        # Prompts come in lumps that hold up every sequence: by the linear-noise approximation the
        # variance of the batch grows by half the second moment of (prefill time ÷ decode time).
        lumps = self.prefill_ratio / (1 - self.prefill_ratio)
        self.prefill_noise_ratio = 1 + lumps**2 * (1 + traffic.input_cv**2) / 2
        # A backlog cannot bring more prompts a second than sequences end.
        self.step_s = [
            min(full_s, (law.base_s + self.slope_s * n) / (1 - self.prefill_ratio))
            for n in range(self.batch)
        ] + [full_s]
        logs = [0.0]
        for n in range(1, self.batch + 1):
            logs.append(logs[-1] + math.log(max(rate, 1e-300) * output * self.step_s[n] / n))
        peak = max(logs)
        weights = [math.exp(log - peak) for log in logs]
        self.drain_per_s = self.batch / (output * full_s)
        tail = weights[-1] / (1 - rate / self.drain_per_s)
        total = sum(weights[:-1]) + tail
        self.share = [w / total for w in weights[:-1]] + [tail / total]
        self.queued_ratio = self.share[-1]
        self.mean = sum(n * p for n, p in enumerate(self.share))
        self.mean_step_s = sum(s * p for s, p in zip(self.step_s, self.share, strict=True))

    def variance_of_sequences(self) -> float:
        spread = sum((n - self.mean) ** 2 * p for n, p in enumerate(self.share))
        return spread * self.prefill_noise_ratio

    def seen_step_s(self, percentile: float) -> float:
        """Quantile of the step as a running sequence sees it: a state counts by its sequences."""
        total = sum(n * p for n, p in enumerate(self.share)) or 1.0
        reached = 0.0
        for n, p in enumerate(self.share):
            reached += n * p / total
            if reached >= percentile:
                return self.step_s[max(n, 1)] if n < self.batch else self.step_s[-1]
        return self.step_s[-1]


def _tpot_s(law: StepLaw, traffic: Traffic, chain: _Chain, percentile: float) -> float:
    """Mean step over a request's life, at a percentile over requests.

    Spread comes from the batch that a request met, and from the prompts prefilled during its life
    (Poisson; each costs a·u). The second averages out over long answers only, so the percentile is
    taken over the lengths of the answers too. Life also starts with a debt: the prompts that
    arrived during the step of one's own prefill come next.
    """
    step_s = chain.seen_step_s(0.5)
    batch_s = (chain.seen_step_s(_ONE_SIGMA) - chain.seen_step_s(1 - _ONE_SIGMA)) / 2
    batch_s *= math.sqrt(chain.prefill_noise_ratio)
    arriving = min(traffic.rate_per_s, chain.drain_per_s)
    prompt_s2 = arriving * _prompt_square_s2(law.per_prefill_token_s, traffic)
    own_s = step_s + law.per_prefill_token_s * traffic.uncached_tokens
    decoding = 1 - chain.prefill_ratio
    debt_s = chain.prefill_ratio * own_s / decoding
    kinds = []
    for length in lengths_like(traffic.output_tokens, traffic.output_cv):
        tokens = max(1.0, length)
        prompts_s2 = prompt_s2 / decoding**2 * (step_s / tokens + own_s / tokens**2)
        # Added plainly: a crowd of arrivals brings both the prompts and the larger batch.
        spread_s = batch_s + math.sqrt(prompts_s2)
        kinds.append(_lognormal(step_s + debt_s / tokens, spread_s))
    low, high = 0.0, max(math.exp(kind.inv_cdf(percentile)) for kind in kinds)
    for _ in range(_BISECTION_STEPS):
        guess = (low + high) / 2
        reached = sum(kind.cdf(math.log(guess)) for kind in kinds) / len(kinds)
        low, high = (guess, high) if reached < percentile else (low, guess)
    return max(high, law.step_s(0, 1, traffic.context_tokens))


def _lognormal(mean: float, deviation: float) -> NormalDist:
    """The distribution of the logarithm of a positive quantity with these two moments."""
    variance = math.log1p((deviation / mean) ** 2)
    return NormalDist(math.log(mean) - variance / 2, max(math.sqrt(variance), 1e-9))


def lengths_like(mean: float, cv: float, count: int = 20) -> list[float]:
    """`count` equally likely lengths with about that mean and spread.

    Quantiles of a Weibull distribution of shape cv^-1.086 (the approximation of wind statistics):
    as many short answers as chat traffic has, and exponential at cv 1.
    """
    if cv < 0.01:
        return [mean]
    shape = cv**-1.086
    scale = mean / math.gamma(1 + 1 / shape)
    quantiles = ((i + 0.5) / count for i in range(count))
    return [scale * (-math.log(1 - q)) ** (1 / shape) for q in quantiles]


def _prompt_square_s2(per_token_s: float, traffic: Traffic) -> float:
    """Second moment of the time that one prompt takes."""
    return (per_token_s * traffic.uncached_tokens) ** 2 * (1 + traffic.input_cv**2)


def _ttft_s(law: StepLaw, traffic: Traffic, chain: _Chain, percentile: float) -> float:
    """Time to the first token at a percentile: two moments of the prefill part, taken as lognormal,
    and the exponential tail of the wait for a place."""
    idle_s = law.base_s + chain.slope_s * chain.mean  # a step without prompts
    per_token_s = law.per_prefill_token_s + idle_s / law.batched_tokens
    own_s = per_token_s * traffic.uncached_tokens
    busy = min(0.99, traffic.rate_per_s * own_s)
    step_s = chain.mean_step_s
    # Gated batches: prompts that arrive in one step are prefilled together in the next.
    share = 0.5 + busy
    queue_s = traffic.rate_per_s * _prompt_square_s2(per_token_s, traffic) * share / (1 - busy**2)
    mean_s = step_s * share + queue_s + idle_s + own_s
    variance = step_s**2 / 12
    variance += queue_s**2 * (2 / max(busy, 1e-9) - 1) if queue_s > 0 else 0.0
    variance += (own_s * traffic.input_cv) ** 2
    reach = share / (1 - chain.prefill_ratio) + 1
    variance += chain.slope_s**2 * chain.variance_of_sequences() * reach**2
    prefill_s = math.exp(_lognormal(mean_s, math.sqrt(variance)).inv_cdf(percentile))
    return prefill_s + _place_wait_s(traffic, chain, percentile)


def _place_wait_s(traffic: Traffic, chain: _Chain, percentile: float) -> float:
    """Quantile of the wait for a place in a full batch: exponential, as in M/M/n, scaled by
    (1 + cv²)/2 for the regularity of the lengths (the Allen-Cunneen approximation)."""
    beyond = 1 - percentile
    if chain.queued_ratio <= beyond:
        return 0.0
    relief_per_s = chain.drain_per_s - traffic.rate_per_s
    regularity = (1 + traffic.output_cv**2) / 2
    return math.log(chain.queued_ratio / beyond) / relief_per_s * regularity
