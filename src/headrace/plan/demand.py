"""What is asked of the fleet: the requests, and the latencies promised to them."""

from __future__ import annotations

import msgspec


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
