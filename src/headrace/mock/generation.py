"""One generation request on one replica: its sequences, its answer, its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson

from headrace.mock import text
from headrace.mock.api_errors import ApiError
from headrace.mock.dialects import Dialect
from headrace.mock.http import Headers, Reply

if TYPE_CHECKING:
    from headrace.mock.replica import Replica


class Generation:
    """Feeds the tokens of one request into its dialect and its reply.

    It ends exactly once: finished, aborted because the client left, or failed.
    """

    __slots__ = ("_dialect", "_headers", "_left", "_replica", "_reply", "generated", "reasons")

    def __init__(
        self, replica: Replica, dialect: Dialect, reply: Reply, headers: Headers | None
    ) -> None:
        self._replica = replica
        self._dialect = dialect
        self._reply = reply
        self._headers = headers
        count = dialect.ask.sequences
        self.generated = [0] * count
        self.reasons = [""] * count
        self._left = count
        reply.on_gone = self._gone
        if dialect.ask.stream:
            reply.start_stream(headers)
            opening = dialect.opening()
            if opening:
                reply.event(opening)

    def token_sink(self, index: int) -> Callable[[int, bool], None]:
        return lambda count, last: self.tokens(index, count, last)

    def tokens(self, index: int, count: int, last: bool) -> None:
        """`count` new tokens of choice `index`; `last` if the sequence is complete."""
        dialect = self._dialect
        before = self.generated[index]
        self.generated[index] = before + count
        reason = self._natural_reason() if last else None
        events = b"" if before or not dialect.ask.stream else dialect.first(index)
        dialect.usage.completion_tokens += count  # the role event still says the count before
        if dialect.ask.stream:
            said = text.words(dialect.ask.seed + index, before, count)
            self._reply.event(events + dialect.tokens(index, said, reason))
        if reason is not None:
            self._choice_ended(index, reason)

    def abort_by_replica(self) -> None:
        """The replica is told to stop: every open choice ends with reason `abort`."""
        for index, reason in enumerate(self.reasons):
            if not reason:
                if self._dialect.ask.stream:
                    self._reply.event(self._dialect.tokens(index, "", "abort"))
                self._choice_ended(index, "abort")

    def fail(self, error: ApiError) -> None:
        """The engine died or refused: an error event and `[DONE]`, or an error answer."""
        self._replica.generations.discard(self)
        if self._dialect.ask.stream:
            self._reply.event(error.event())
            self._reply.event(b"data: [DONE]\n\n")
            self._reply.end()
        else:
            self._reply.send(error.status, error.body(), self._headers)

    def _natural_reason(self) -> str:
        return "stop" if self._dialect.ask.output_tokens is None else "length"

    def _choice_ended(self, index: int, reason: str) -> None:
        self.reasons[index] = reason
        self._replica.count_finish(reason)
        self._left -= 1
        if self._left:
            return
        self._replica.generations.discard(self)
        ask = self._dialect.ask
        said = [text.words(ask.seed + i, 0, n) for i, n in enumerate(self.generated)]
        if ask.stream:
            self._reply.event(self._dialect.closing(said, self.reasons))
            self._reply.end()
        else:
            self._reply.send(
                200, orjson.dumps(self._dialect.whole(said, self.reasons)), self._headers
            )

    def _gone(self) -> None:
        self._replica.abort(self)
