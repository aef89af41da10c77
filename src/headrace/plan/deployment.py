"""One replica as the formulas see it: which model in which types, on which cards, linked how."""

from __future__ import annotations

import msgspec

from headrace.plan.gpus import Gpu
from headrace.plan.links import DEFAULT_NETWORK, LINKS, Link
from headrace.plan.models import Model


class Split(msgspec.Struct, frozen=True):
    """How one replica is cut: tensor-parallel ways inside a stage, pipeline stages."""

    tp: int = 1
    pp: int = 1

    @property
    def gpus(self) -> int:
        """Cards of one replica."""
        return self.tp * self.pp


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """What is reached of the sheet's figures, and what a step costs beside the GPU's work.

    The ranges are what published vLLM runs show (sources in `docs/planning.md`).
    """

    bandwidth_ratio: float = 0.80  # 0.65–0.90 of the peak while decoding
    compute_ratio: float = 0.50  # 0.35–0.65 of the dense peak during prefill
    step_s: float = 1.0e-3  # 0.5–2 ms: scheduling, launch, sampling
    expert_layer_s: float = (
        80e-6  # 40–120 µs: routing, sorting, small kernels of a layer of experts
    )
    sequence_s: float = 10e-6  # 5–20 µs: scheduling and detokenising one more sequence


DEFAULT_EFFICIENCY = Efficiency()

# Products with many small experts reach about half of what dense ones do: 52,300 prompt tokens/s of
# DeepSeek-V3 on 8 H100 are 24 % of their FP8 peak (lmsys.org, 2025-05-05, large-scale EP).
EXPERT_COMPUTE_RATIO = 0.5

EFFICIENCY_RANGES = {
    "bandwidth_ratio": (0.65, 0.90),
    "compute_ratio": (0.35, 0.65),
    "step_s": (0.5e-3, 2e-3),
    "expert_layer_s": (40e-6, 120e-6),
    "sequence_s": (5e-6, 20e-6),
}


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A replica: the model and its types, the card and the split, the links, what is reached.

    `tensor_link` joins the cards of a stage, `stage_link` the stages.
    """

    model: Model
    gpu: Gpu
    split: Split
    weights_dtype: str
    kv_dtype: str
    tensor_link: Link
    stage_link: Link
    efficiency: Efficiency = DEFAULT_EFFICIENCY


def deployment_of(
    model: Model,
    gpu: Gpu,
    split: Split = Split(),
    weights_dtype: str = "bf16",
    kv_dtype: str = "bf16",
) -> Deployment:
    """A replica with the card's own links: tensor parallel inside the machine, stages across."""
    return Deployment(
        model=model,
        gpu=gpu,
        split=split,
        weights_dtype=weights_dtype,
        kv_dtype=kv_dtype,
        tensor_link=LINKS[gpu.link],
        stage_link=LINKS[DEFAULT_NETWORK],
    )
