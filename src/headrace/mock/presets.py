"""Named engines: how long a step takes and how much fits, each with its derivation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """Coefficients of one replica's step time, and its limits.

    A step takes `base_ms + prefill_us·prefill tokens + decode_us·decoding sequences +
    context_us·context tokens read`.
    """

    base_ms: float
    prefill_us: float
    decode_us: float
    context_us: float
    kv_tokens: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 32768
    source: str = ""


STUDY = "coefficients of the policy study, from published figures"
PRESETS = {
    "llama3-8b-h100": Preset(6.5, 28.0, 25.0, 0.055, 384_000, source=STUDY),
    "llama2-7b-a10": Preset(24.0, 230.0, 100.0, 1.1, 13_600, max_model_len=4096, source=STUDY),
}
DEFAULT_PRESET = "llama3-8b-h100"
