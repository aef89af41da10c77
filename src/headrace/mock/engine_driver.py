"""Runs one engine model in real time and hands its tokens to the requests."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Protocol

from headrace.mock.engine_model import FINISHED, FIRST_TOKEN, NEVER_NS, TOKENS, Engine
from headrace.mock.histogram import Histogram

Event = tuple[int, int, int, int]


class Sink(Protocol):
    """What a sequence's progress is reported to."""

    def scheduled(self, index: int, cached_tokens: int) -> None: ...
    def tokens(self, index: int, count: int, last: bool) -> None: ...


class Sequence:
    """One sequence on the engine: choice `index` of a request."""

    __slots__ = (
        "arrival_ns",
        "ended",
        "first_ns",
        "generated",
        "handle",
        "index",
        "last_ns",
        "output_tokens",
        "prompt_tokens",
        "request_id",
        "scheduled_ns",
        "sent",
        "sink",
    )

    def __init__(self, sink: Sink, index: int, prompt_tokens: int, output_tokens: int) -> None:
        self.sink = sink
        self.index = index
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.request_id = self.handle = 0
        self.arrival_ns = self.scheduled_ns = self.first_ns = self.last_ns = 0
        self.generated = self.sent = 0
        self.ended = False


class EngineDriver:
    """The clock of one engine: a timer that fires when its current step ends.

    Times of an engine with a speed-up are shorter to begin with, so its nanoseconds are real ones.
    """

    def __init__(self, engine: Engine, histograms: dict[str, Histogram]) -> None:
        self.engine = engine
        self.histograms = histograms
        self._loop = asyncio.get_running_loop()
        self._origin_ns = time.monotonic_ns()
        self._sequences: dict[int, Sequence] = {}
        self._next_id = 0
        self._timer: asyncio.TimerHandle | None = None

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._origin_ns

    def submit(self, now_ns: int, sequence: Sequence, hashes: bytes) -> None:
        """Queue a sequence. Those of one request have the same time, so that they can begin in the
        same step; then `arm` has to follow."""
        sequence.arrival_ns = now_ns
        sequence.request_id = self._next_id
        self._next_id += 1
        sequence.handle = self.engine.submit(
            now_ns,
            sequence.request_id,
            sequence.prompt_tokens,
            sequence.output_tokens,
            hashes,
        )
        self._sequences[sequence.request_id] = sequence

    def abort(self, sequence: Sequence) -> None:
        if self._sequences.pop(sequence.request_id, None) is not None:
            self.engine.abort(self.now_ns(), sequence.handle)

    def kill(self) -> None:
        self._sequences.clear()
        self.engine.kill(self.now_ns())

    def arm(self) -> None:
        """Make sure that the timer runs if the engine has something to do."""
        if self._timer is not None:
            return
        next_ns = self.engine.next_event_ns()
        if next_ns != NEVER_NS:
            # The loop's timers count in milliseconds; late is harmless, early is a wasted turn.
            delay_ms = max(0, next_ns - self.now_ns()) // 1_000_000 + 1
            self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def catch_up(self) -> None:
        """Bring the engine's counters up to the present, for someone who reads them."""
        self._dispatch(self.engine.advance(self.now_ns()))
        self.arm()

    def _tick(self) -> None:
        self._timer = None
        self.catch_up()

    def _dispatch(self, events: list[Event]) -> None:
        fresh: dict[int, Sequence] = {}
        gaps_ns: Counter[int] = Counter()
        for time_ns, kind, request_id, value in events:
            sequence = self._sequences.get(request_id)
            if sequence is None:
                continue
            if kind == TOKENS:
                if sequence.generated:
                    gaps_ns[time_ns - sequence.last_ns] += 1
                sequence.last_ns = time_ns
                sequence.generated = value
                fresh[request_id] = sequence
            elif kind == FIRST_TOKEN:
                sequence.first_ns = time_ns
                waited_ns = time_ns - sequence.arrival_ns
                self.histograms["time_to_first_token_seconds"].observe(waited_ns / 1e9)
            elif kind == FINISHED:
                sequence.ended = True
                self._observe_end(sequence, time_ns)
            else:
                sequence.scheduled_ns = time_ns
                sequence.sink.scheduled(sequence.index, value)
        for gap_ns, count in gaps_ns.items():
            self.histograms["inter_token_latency_seconds"].observe(gap_ns / 1e9, count)
        for sequence in fresh.values():
            self._hand_over(sequence)

    def _hand_over(self, sequence: Sequence) -> None:
        count = sequence.generated - sequence.sent
        sequence.sent = sequence.generated
        if sequence.ended:
            del self._sequences[sequence.request_id]
        sequence.sink.tokens(sequence.index, count, sequence.ended)

    def _observe_end(self, sequence: Sequence, end_ns: int) -> None:
        decode_s = (end_ns - sequence.first_ns) / 1e9
        gaps = max(1, sequence.output_tokens - 1)
        for name, value in (
            ("e2e_request_latency_seconds", (end_ns - sequence.arrival_ns) / 1e9),
            ("request_queue_time_seconds", (sequence.scheduled_ns - sequence.arrival_ns) / 1e9),
            ("request_inference_time_seconds", (end_ns - sequence.scheduled_ns) / 1e9),
            ("request_prefill_time_seconds", (sequence.first_ns - sequence.scheduled_ns) / 1e9),
            ("request_decode_time_seconds", decode_s),
            ("request_time_per_output_token_seconds", decode_s / gaps),
            ("request_prompt_tokens", sequence.prompt_tokens),
            ("request_generation_tokens", sequence.output_tokens),
            ("request_params_max_tokens", sequence.output_tokens),
        ):
            self.histograms[name].observe(value)
