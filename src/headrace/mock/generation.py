"""One generation request on one replica: its sequences, its answer, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from headrace.mock import text
from headrace.mock.api_errors import ApiError
from headrace.mock.dialects import DONE, Dialect
from headrace.mock.engine_driver import Sequence
from headrace.mock.http import Headers, Reply
from headrace.mock.options import BLOCK_TOKENS

if TYPE_CHECKING:
    from headrace.mock.replica import Replica


class Generation:
    """Feeds the tokens of one request into its dialect and its reply.

    It ends exactly once: finished, aborted by the replica, failed, or left by its client.
    """

    __slots__ = (
        "_dialect",
        "_headers",
        "_left",
        "_replica",
        "_reply",
        "_said",
        "reasons",
        "sequences",
    )

    def __init__(
        self, replica: Replica, dialect: Dialect, reply: Reply, headers: Headers | None
    ) -> None:
        count = dialect.ask.sequences
        self._replica = replica
        self._dialect = dialect
        self._reply = reply
        self._headers = headers
        self._left = count
        self._said = [0] * count  # tokens so far, by choice
        self.reasons = [""] * count
        self.sequences: list[Sequence] = []
        reply.on_gone = self._gone
        if dialect.ask.stream:  # the head comes before the queue
            reply.start_stream(headers)
            opening = dialect.opening()
            if opening:
                reply.event(opening)

    def scheduled(self, index: int, cached_tokens: int) -> None:
        """Choice `index` left the queue. vLLM says of a request what holds for its first choice."""
        usage = self._dialect.usage
        if index == 0:
            usage.cached_tokens = cached_tokens
            stored = usage.prompt_tokens // BLOCK_TOKENS * BLOCK_TOKENS
            usage.created_cache_tokens = max(0, stored - cached_tokens)

    def tokens(self, index: int, count: int, last: bool) -> None:
        """`count` new tokens of choice `index`; `last` if the sequence is complete."""
        dialect, usage = self._dialect, self._dialect.usage
        before = self._said[index]
        after = self._said[index] = before + count
        reason = self._natural_reason() if last else None
        if dialect.ask.stream:
            # the role event still says the token count before this one
            events = [] if before else [dialect.first(index)]
            seed = dialect.ask.seed + index
            for place in range(before, after):
                usage.completion_tokens += 1
                ending = reason if place == after - 1 else None
                events.append(dialect.tokens(index, text.words(seed, place, 1), ending))
            self._reply.event(b"".join(events))
        else:
            usage.completion_tokens += count
        if reason is not None:
            self._replica.count_finish(reason)
            self._choice_ended(index, reason)

    def end_by_replica(self) -> None:
        """The replica is told to stop: every open choice ends with reason `abort`."""
        dialect = self._dialect
        for index, reason in enumerate(self.reasons):
            if not reason:
                if dialect.ask.stream:
                    events = b"" if self._said[index] else dialect.first(index)
                    self._reply.event(events + dialect.tokens(index, "", "abort"))
                self._choice_ended(index, "abort")

    def fail(self, error: ApiError) -> None:
        """The engine died or refused: an error event and `[DONE]`, or an error answer."""
        self._replica.open.discard(self)
        if self._dialect.ask.stream:
            self._reply.event(error.event())
            self._reply.event(DONE)
            self._reply.end()
        else:
            self._reply.send(error.status, error.body(), self._headers)

    def _natural_reason(self) -> str:
        return "stop" if self._dialect.ask.output_tokens is None else "length"

    def _choice_ended(self, index: int, reason: str) -> None:
        self.reasons[index] = reason
        self._left -= 1
        if self._left:
            return
        self._replica.open.discard(self)
        dialect = self._dialect
        seed = dialect.ask.seed
        said = [text.words(seed + i, 0, count) for i, count in enumerate(self._said)]
        if dialect.ask.stream:
            self._reply.event(dialect.closing(said, self.reasons))
            self._reply.end()
        else:
            whole = orjson.dumps(dialect.whole(said, self.reasons))
            self._reply.send(200, whole, self._headers)

    def _gone(self) -> None:
        self._replica.abort(self)
