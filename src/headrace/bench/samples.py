"""What was seen of each request, in seconds from the start of the run."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

# Kinds that mean "not now" rather than "broken".
REJECTIONS = frozenset({"status_429", "status_503", "error_429", "error_503"})


@dataclass(slots=True)
class Sample:
    """One request. `due_s` is when it should have been sent: latency counts from there.

    `error` is None for a complete answer; times that never came are None.
    """

    due_s: float
    sent_s: float
    prompt_tokens: int
    first_token_s: float | None = None
    last_token_s: float | None = None
    end_s: float | None = None
    output_tokens: int = 0
    cached_tokens: int | None = None
    replica: str | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def rejected(self) -> bool:
        return self.error in REJECTIONS

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_s is None else self.first_token_s - self.due_s

    @property
    def e2e_s(self) -> float | None:
        return None if self.end_s is None else self.end_s - self.due_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time per token after the first; None for fewer than two tokens."""
        if self.first_token_s is None or self.last_token_s is None or self.output_tokens < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.output_tokens - 1)


@dataclass(slots=True)
class Record:
    """A run under way: what is finished, and what is on its way."""

    samples: list[Sample] = field(default_factory=list)
    itl_s: array[float] = field(default_factory=lambda: array("d"))  # gaps between events
    # (time, in flight, of those without a first token) at each change
    levels: list[tuple[float, int, int]] = field(default_factory=list)
    in_flight: int = 0
    awaiting: int = 0
    sent: int = 0

    def start(self, now_s: float) -> None:
        self.sent += 1
        self._move(now_s, 1, 1)

    def first_token(self, now_s: float) -> None:
        self._move(now_s, 0, -1)

    def finish(self, sample: Sample, now_s: float) -> None:
        self.samples.append(sample)
        self._move(now_s, -1, 0 if sample.first_token_s is not None else -1)

    def _move(self, now_s: float, in_flight: int, awaiting: int) -> None:
        self.in_flight += in_flight
        self.awaiting += awaiting
        self.levels.append((now_s, self.in_flight, self.awaiting))
