"""Named engines: how long a step takes and how much fits, each with its derivation.

They are roofline figures, not measurements. The first two are those of the policy study, made from
published figures; the others are what `headrace.plan.steplaw.step_law` gives for the model, card,
split and types in `source` (bandwidth at 80 %, compute at 50 % of the data sheet). A test compares
all of them with the planner.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.mock.engine_model import Engine


@dataclass(frozen=True, slots=True)
class Preset:
    """Coefficients of one replica's step time, and its limits.

    A step takes `base_ms + prefill_us·prefill tokens + decode_us·decoding sequences +
    context_us·KV tokens that these read`.
    """

    base_ms: float
    prefill_us: float
    decode_us: float
    context_us: float
    kv_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    source: str
    gpus: int = 1
    card: str = "NVIDIA H100 80GB HBM3"


PRESETS = {
    "llama3-8b-h100": Preset(
        6.5, 28.0, 25.0, 0.055, 384_000, 256, 8192, 8192, "Llama 3 8B, bf16, H100-SXM; study"
    ),
    "llama2-7b-a10": Preset(
        24.0,
        230.0,
        100.0,
        1.1,
        13_600,
        256,
        2048,
        4096,
        "Llama 2 7B, fp16, A10; study",
        card="NVIDIA A10",
    ),
    "llama3-8b-l4": Preset(
        34.5,
        115.4,
        72.0,
        0.273,
        180_560,
        256,
        2048,
        8192,
        "Llama 3 8B, fp8, KV fp8, L4",
        card="NVIDIA L4",
    ),
    "qwen-27b-int4-24gb": Preset(  # a dense Qwen of 27B: the shape of Qwen3 32B with 52 layers
        19.3,
        613.9,
        500.1,
        0.264,
        27_728,
        256,
        2048,
        16384,
        "Qwen 27B, int4, RTX4090",
        card="NVIDIA GeForce RTX 4090",
    ),
    "qwen3-32b-2xh100-tp2": Preset(
        13.96,
        66.7,
        42.3,
        0.0489,
        331_856,
        1024,
        8192,
        40960,
        "Qwen3 32B, bf16, 2 × H100-SXM",
        gpus=2,
    ),
    "llama3-70b-8xh100-tp8": Preset(
        8.78,
        47.3,
        27.6,
        0.0153,
        1_449_296,
        1024,
        8192,
        8192,
        "Llama 3 70B, bf16, 8 × H100-SXM",
        gpus=8,
    ),
    "deepseek-v3-8xh200-tp8": Preset(
        25.68,
        26.5,
        20.4,
        0.0183,
        758_176,
        1024,
        8192,
        131072,
        "DeepSeek-V3, fp8, 8 × H200",
        gpus=8,
        card="NVIDIA H200",
    ),
}
DEFAULT_PRESET = "llama3-8b-h100"


def engine_of(
    preset: Preset,
    *,
    seed: int = 0,
    noise_ratio: float = 0.0,
    block_tokens: int = 16,
    detailed: bool = False,
    speedup: float = 1.0,
) -> Engine:
    """An engine of that kind; with `speedup` X all its times are X times shorter."""
    us = 1e3 / speedup
    return Engine(
        base_ns=preset.base_ms * 1e3 * us,
        prefill_ns=preset.prefill_us * us,
        decode_ns=preset.decode_us * us,
        context_ns=preset.context_us * us,
        kv_tokens=preset.kv_tokens,
        block_tokens=block_tokens,
        max_num_seqs=preset.max_num_seqs,
        max_num_batched_tokens=preset.max_num_batched_tokens,
        noise_ratio=noise_ratio,
        seed=seed,
        detailed=detailed,
    )
