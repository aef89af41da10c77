"""Paces the tokens of one replica: each request alone on its engine, without a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.mock.presets import Preset

OnTokens = Callable[[int, bool], None]  # how many new tokens, and whether they are the last


class Sequence:
    """One sequence on the engine; `generated` tokens so far."""

    __slots__ = ("cached_tokens", "generated", "on_tokens", "output_tokens", "timer")

    def __init__(self, output_tokens: int, on_tokens: OnTokens) -> None:
        self.output_tokens = output_tokens
        self.on_tokens = on_tokens
        self.generated = 0
        self.cached_tokens = 0
        self.timer: asyncio.TimerHandle | None = None


class Pacer:
    """Gives each sequence its tokens at the preset's pace, `speedup` times as fast."""

    def __init__(self, preset: Preset, speedup: float) -> None:
        self._preset = preset
        self._speedup = speedup
        self._loop = asyncio.get_running_loop()
        self.running: set[Sequence] = set()
        self.prompt_tokens = 0
        self.generation_tokens = 0

    def submit(self, prompt_tokens: int, output_tokens: int, on_tokens: OnTokens) -> Sequence:
        sequence = Sequence(output_tokens, on_tokens)
        self.running.add(sequence)
        self.prompt_tokens += prompt_tokens
        self._arm(sequence, prompt_tokens * self._preset.prefill_us / 1e6)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        self.running.discard(sequence)
        if sequence.timer is not None:
            sequence.timer.cancel()

    def _arm(self, sequence: Sequence, extra_s: float) -> None:
        step_s = self._preset.base_ms / 1e3 + len(self.running) * self._preset.decode_us / 1e6
        delay_s = (step_s + extra_s) / self._speedup
        sequence.timer = self._loop.call_later(delay_s, self._step, sequence)

    def _step(self, sequence: Sequence) -> None:
        sequence.generated += 1
        self.generation_tokens += 1
        last = sequence.generated >= sequence.output_tokens
        if last:
            self.running.discard(sequence)
        else:
            self._arm(sequence, 0.0)
        sequence.on_tokens(1, last)
