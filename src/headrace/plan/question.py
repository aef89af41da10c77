"""What the planner is asked."""

from __future__ import annotations

import msgspec

from headrace.plan.demand import Slo, Traffic
from headrace.plan.deployment import DEFAULT_EFFICIENCY, Efficiency
from headrace.plan.gpus import Gpu
from headrace.plan.links import Link
from headrace.plan.models import Model

# Promised when the user names none: a first token within two seconds, then 20 tokens a second,
# which is faster than people read.
ASSUMED_SLO = Slo(ttft_s=2.0, tpot_s=0.05)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the planner.

    `traffic.rate_per_s` 0 means that no traffic is known: a replica is described, no fleet.
    `cards` is what there is; the fleet then fills it. `always_on` asks for one replica to spare. An
    SLO that is `slo_assumed` is dropped where it cannot be kept.
    """

    model: Model
    gpu: Gpu
    traffic: Traffic
    weights_dtype: str
    kv_dtype: str
    context_tokens: int
    inside: Link
    between: Link
    gpus_per_host: int = 8
    slo: Slo = ASSUMED_SLO
    slo_assumed: bool = False
    headroom_ratio: float = 0.2
    max_utilization: float = 0.8
    always_on: bool = False
    tp: int | None = None
    pp: int | None = None
    cards: int | None = None
    efficiency: Efficiency = DEFAULT_EFFICIENCY
    measured: bool = False

    @property
    def demand_per_s(self) -> float:
        """The rate to plan for: the traffic's, and the head-room."""
        return self.traffic.rate_per_s * (1 + self.headroom_ratio)
