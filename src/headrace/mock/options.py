"""What all replicas of one mock have in common."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.mock.presets import Preset

BLOCK_TOKENS = 16


@dataclass(slots=True)
class Options:
    """Settings of a mock; times are divided by `speedup`."""

    models: list[str]
    preset: Preset
    speedup: float = 1.0
    seed: int = 0
    noise_ratio: float = 0.0
    api_key: str | None = None
    request_id_headers: bool = False
    max_queued: int = 0  # waiting requests from which on new ones are refused; 0: no limit
