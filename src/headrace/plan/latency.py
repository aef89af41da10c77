"""TTFT and TPOT of a replica by percentile, and the rate at which it keeps its promises.

Built on the chain of `queueing`. TPOT is s(n) as the requests see it; TTFT is the rest of the step
under way, the prompts that come with ours, our own prefill, and the wait for a place.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import msgspec

from headrace.plan.demand import Slo, Traffic
from headrace.plan.queueing import Chain, saturation_rate_per_s
from headrace.plan.steplaw import StepLaw

# Bisection of the rate: 2^-30 of the range is below any figure that is shown.
_BISECTION_STEPS = 30
# Beyond this share of the saturation rate waiting times say more about the formula than the engine.
MAX_UTILIZATION = 0.99


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


def latency_at(
    law: StepLaw, traffic: Traffic, percentile: float = 0.95, pool: int = 1
) -> Latency | None:
    """TTFT and TPOT of one replica of `pool` behind a router, at that percentile (0–1).

    `traffic.rate_per_s` is the replica's own. None when it cannot keep up.
    """
    limit = saturation_rate_per_s(law, traffic)
    if limit <= 0 or traffic.rate_per_s > MAX_UTILIZATION * limit:
        return None
    chain = Chain(law, traffic, pool)
    return Latency(
        utilization=traffic.rate_per_s / limit,
        sequences=chain.mean,
        step_s=chain.mean_step_s,
        ttft_s=_ttft_s(law, traffic, chain, percentile),
        tpot_s=_tpot_s(law, traffic, chain, percentile),
        queued_ratio=chain.queued_ratio,
    )


def capacity_per_s(
    law: StepLaw,
    traffic: Traffic,
    slo: Slo,
    max_utilization: float = MAX_UTILIZATION,
    pool: int = 1,
) -> float:
    """The highest rate at which one replica of `pool` keeps the SLO; 0 when it does at none."""
    low, high = 0.0, saturation_rate_per_s(law, traffic) * min(max_utilization, MAX_UTILIZATION)
    if high <= 0 or _keeps(law, traffic.at(high), slo, pool):
        return high
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _keeps(law, traffic.at(middle), slo, pool) else (low, middle)
    # A rate of next to nothing is an SLO that not even a lone request keeps.
    return low if low > high * 1e-6 and low * 1e6 > 1 else 0.0


def _keeps(law: StepLaw, traffic: Traffic, slo: Slo, pool: int) -> bool:
    found = latency_at(law, traffic, slo.percentile, pool)
    return found is not None and found.meets(slo)


def _tpot_s(law: StepLaw, traffic: Traffic, chain: Chain, percentile: float) -> float:
    """Mean step over a request's life, at a percentile over requests.

    Spread comes from the batch that a request met, and from the prompts prefilled during its life
    (Poisson; each costs a·u). The second averages out over long answers only, so the percentile is
    taken over the lengths of the answers too. Life also starts with a debt: the prompts that
    arrived during the step of one's own prefill come next.
    """
    step_s = chain.seen_step_s(0.5)
    batch_s = chain.deviation_of_step_s()
    prompt_s = law.per_prefill_token_s * traffic.uncached_tokens
    arriving = min(traffic.rate_per_s, chain.drain_per_s)
    prompt_s2 = arriving * prompt_s**2 * chain.work_cv2
    own_s = step_s + prompt_s
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


def _ttft_s(law: StepLaw, traffic: Traffic, chain: Chain, percentile: float) -> float:
    """Time to the first token at a percentile: two moments of the prefill part, taken as lognormal,
    and the exponential tail of the wait for a place."""
    idle_s = law.base_s + chain.slope_s * chain.mean  # a step without prompts
    per_token_s = law.per_prefill_token_s + idle_s / law.batched_tokens
    own_s = per_token_s * traffic.uncached_tokens
    busy = min(0.99, traffic.rate_per_s * own_s)
    step_s = chain.mean_step_s
    # Gated batches: prompts that arrive in one step are prefilled together in the next.
    share = 0.5 + busy
    queue_s = traffic.rate_per_s * own_s**2 * chain.work_cv2 * share / (1 - busy**2)
    mean_s = step_s * share + queue_s + idle_s + own_s
    variance = step_s**2 / 12
    variance += queue_s**2 * (2 / max(busy, 1e-9) - 1) if queue_s > 0 else 0.0
    variance += (own_s * traffic.input_cv) ** 2
    reach = share / (1 - chain.prefill_ratio) + 1
    variance += (chain.slope_s * chain.deviation_of_sequences() * reach) ** 2
    prefill_s = math.exp(_lognormal(mean_s, math.sqrt(variance)).inv_cdf(percentile))
    return prefill_s + _place_wait_s(traffic, chain, percentile)


def _place_wait_s(traffic: Traffic, chain: Chain, percentile: float) -> float:
    """Quantile of the wait for a place in a full batch: exponential, as in M/M/n, scaled by
    (1 + cv²)/2 for the regularity of the lengths (the Allen-Cunneen approximation)."""
    beyond = 1 - percentile
    if chain.queued_ratio <= beyond:
        return 0.0
    relief_per_s = (chain.drain_per_s - traffic.rate_per_s) * chain.pool
    regularity = (1 + traffic.output_cv**2) / 2
    return math.log(chain.queued_ratio / beyond) / relief_per_s * regularity
