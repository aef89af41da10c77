from typing import Final

POLICIES: Final[tuple[str, ...]]
REASONS: Final[tuple[str, ...]]

class Lease:
    """One attempt's claim on a slot; it ends once, what comes later does nothing.

    Attributes:
        slot, generation, model, pair, group: where the claim is booked.
        policy, reason: index into POLICIES and REASONS.
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
    policy: int
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
