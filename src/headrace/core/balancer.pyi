from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from headrace.core.request import RouteRequest
from headrace.core.segment import Segment

POLICIES: Final[tuple[str, ...]]
REASONS: Final[tuple[str, ...]]
ADMISSIONS: Final[tuple[str, ...]]

class Verdict(IntEnum):
    ROUTED = 0
    NO_REPLICA = 1
    OVERLOADED = 2
    GATEWAY_FULL = 3
    RETRY_DENIED = 4

class Lease:
    """One attempt's claim on a slot; it ends once, what comes later does nothing.

    Attributes:
        slot, generation, model, pair, group: where the claim is booked.
        reason: index into REASONS.
        open, stream, sequences: what is claimed.
        dispatched_ns, start_at_ns, first_ns, last_ns: times; 0 where not yet.
        generated: content events so far.
        prompt_tokens, hit_tokens, matched_tokens, output_tokens: estimates of the decision;
            hit_tokens is matched_tokens faded with age, output_tokens is of one sequence.
        score: in the policy's unit, lower is better.
    """

    slot: int
    model: int
    pair: int
    group: int
    generation: int
    reason: int
    open: bool
    stream: bool
    sequences: int
    dispatched_ns: int
    start_at_ns: int
    first_ns: int
    last_ns: int
    generated: int
    prompt_tokens: float
    hit_tokens: float
    matched_tokens: int
    score: float
    output_tokens: float
    def __init__(self) -> None: ...
    def tokens(self, now_ns: int, count: int = ...) -> None:
        """A read with `count` content events; the first call is the first token."""
    def pause(self) -> None:
        """Reading was paused by us: the gap before the next read says nothing of the replica."""
    def finish(
        self,
        now_ns: int,
        prompt_tokens: int = ...,
        completion_tokens: int = ...,
        cached_tokens: int = ...,
    ) -> None:
        """It ended well; usage as the engine counts, -1 where unknown."""
    def fail(self, now_ns: int, failure: int) -> None:
        """It failed; `failure` is an index into headrace.core.segment.FAILURE_NAMES."""
    def neutral(self, now_ns: int) -> None:
        """It ended in a way that says nothing about the replica (a 4xx answer)."""
    def cancel(self, now_ns: int) -> None:
        """Nobody wants the answer any more."""
    @property
    def decision(self) -> str:
        """The text of x-headrace-decision."""

class Balancer:
    """One process's hands on the segment: it routes, and books what its leases do.

    Args:
        segment: shared with the other processes.
        process: whose cells are written, 0 to segment.processes - 1; segment.processes: a reader
            that can explain but not route.
        settings: all keys of `routing`, `admission` and `retry` in one dict; perhaps `seed`.
    """

    segment: Segment
    process: int
    settings: Mapping[str, Any]
    def __init__(self, segment: Segment, process: int, settings: dict[str, Any]) -> None: ...
    def configure(self, settings: dict[str, Any]) -> None:
        """Take over settings; raises ValueError for an unknown policy."""
    def set_replica(self, slot: int, id: str) -> None:
        """The name behind a slot, from which hashing policies place it."""
    def set_model(self, model: int, group: int, slots: Sequence[int], pairs: Sequence[int]) -> None:
        """A model is served by these slots, each under the pair at the same place."""
    def clear_model(self, model: int) -> None:
        """The model is unknown."""
    def forget_view(self) -> None:
        """Rows have changed: the next decision reads them, whenever it comes."""
    def open(self, request: RouteRequest, now_ns: int) -> tuple[int, Lease]:
        """(verdict, lease): the lease is open if the verdict is ROUTED."""
    def reopen(
        self, request: RouteRequest, failed: Lease, failure: int, now_ns: int
    ) -> tuple[int, Lease]:
        """(verdict, lease) of a retry elsewhere; `failed` has ended."""
    def wait_s(self, model: int, now_ns: int) -> float:
        """Seconds until a refused request is worth another try, 1 to 60."""
    def advance(self, now_ns: int) -> None:
        """What time alone brings about, without a request."""
    def enter(self, count: int) -> None:
        """Requests that entered (negative: left), for admission.max_concurrent_requests."""
    def budget(self, now_ns: int) -> float:
        """Retries that the budget allows now."""
    def choose(self, request: RouteRequest, now_ns: int, times: int = ...) -> int | None:
        """The slot that would be chosen, `times` over without taking it; None: nobody."""
    def learned(self, group: int) -> dict[str, Any]:
        """What is learned of a group of models."""
    def explain(self, request: RouteRequest, now_ns: int) -> dict[str, Any]:
        """What would be chosen and why, by slot; changes nothing.

        Returns:
            `policy`, `slot` (None: nobody), `reason`, `estimate`, `learned` and `replicas`: for
            each slot `eligible`, `why` not, `score` and `terms`.
        """
