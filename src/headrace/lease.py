"""A lease: one attempt's claim on a replica, ended exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from headrace.core import lease as core
from headrace.core.request import RouteRequest as BoundRequest
from headrace.core.segment import FAILURE_NAMES
from headrace.replica import Replica

UNKNOWN = -1


class Lease:
    """A claim on `replica`; whatever ends it first counts, later calls do nothing.

    Left by `with` while it is open, or forgotten, it is cancelled.
    """

    def __init__(
        self,
        replica: Replica,
        taken: core.Lease,
        bound: BoundRequest,
        on_end: Callable[[], None],
    ) -> None:
        self.replica = replica
        self.taken = taken
        self.bound = bound
        self._on_end: Callable[[], None] | None = on_end

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.taken.open

    @property
    def start_at_ns(self) -> int:
        """When the attempt is to begin: the caller waits out the back-off of a retry."""
        return self.taken.start_at_ns

    @property
    def reason(self) -> str:
        """Why this replica was chosen."""
        return core.REASONS[self.taken.reason]

    @property
    def decision(self) -> str:
        """The decision in one line: policy, reason, estimate, match, score."""
        return self.taken.decision

    @property
    def prompt_tokens(self) -> float:
        """The estimate that the decision was made with."""
        return self.taken.prompt_tokens

    @property
    def hit_tokens(self) -> float:
        """How much of the prompt is thought to be in the replica's cache."""
        return self.taken.hit_tokens

    def tokens(self, now_ns: int, count: int = 1) -> None:
        """Say that content came; the first call is the first token.

        Args:
            now_ns: when, by the router's clock.
            count: content events in this read.
        """
        self.taken.tokens(now_ns, count)

    def first_token(self, now_ns: int) -> None:
        """Say that the first content came: `tokens(now_ns, 1)`."""
        self.taken.tokens(now_ns, 1)

    def finish(self, now_ns: int, usage: Mapping[str, Any] | None = None) -> None:
        """End well; `usage` is that of the answer, None if it had none."""
        found = usage or {}
        details = found.get("prompt_tokens_details") or {}
        self.taken.finish(
            now_ns,
            _count(found.get("prompt_tokens")),
            _count(found.get("completion_tokens")),
            _count(details.get("cached_tokens")),
        )
        self._leave()

    def fail(self, now_ns: int, reason: str = "reset") -> None:
        """End badly, by the replica's fault.

        Args:
            now_ns: when.
            reason: one of headrace.core.segment.FAILURE_NAMES, e.g. `refused`, `cut`, `timeout`,
                `5xx`, or `overloaded`, which is no sign of sickness.

        Raises:
            ValueError: for any other reason.
        """
        if reason not in FAILURE_NAMES:
            raise ValueError(f"reason: wanted {reason!r}, have {', '.join(FAILURE_NAMES)}")
        self.taken.fail(now_ns, FAILURE_NAMES.index(reason))
        self._leave()

    def cancel(self, now_ns: int) -> None:
        """End because nobody wants the answer any more."""
        self.taken.cancel(now_ns)
        self._leave()

    def _leave(self) -> None:
        done, self._on_end = self._on_end, None
        if done is not None:
            done()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._abandon()

    def __del__(self) -> None:
        self._abandon()

    def _abandon(self) -> None:
        # There is no clock here; the last thing that was seen is the best known time.
        if getattr(self, "_on_end", None) is not None:
            self.cancel(self.taken.last_ns or self.taken.start_at_ns)


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else UNKNOWN
