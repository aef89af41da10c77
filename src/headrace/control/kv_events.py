"""What vLLM's KV-cache events say, as far as a gateway that does not tokenise can use it; pure.

A message is (topic, sequence number, msgpack). Its block hashes are over token ids, those of the
prefix table over text: they cannot be matched. What can be taken from a message is that the cache
was cleared, and how many blocks came and went.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import msgspec

from headrace.errors import HeadraceError

MAX_EVENTS = 100_000  # of one message
END_OF_REPLAY = b"\xff" * 8


class BadEvents(HeadraceError):
    """A message that is none of vLLM's."""


class _Event(msgspec.Struct):
    type: str
    block_hashes: list[Any] = []


class Summary(NamedTuple):
    """What one message amounts to."""

    stored: int = 0  # blocks
    removed: int = 0
    is_cleared: bool = False


_decoder = msgspec.msgpack.Decoder(tuple[Any, ...])


def read(payload: bytes) -> Summary:
    """Sum up a message, `[time, [event, …], rank?]`; raises BadEvents. Unknown events count 0."""
    try:
        _, events, *_ = _decoder.decode(payload)
        found = msgspec.convert(events, list[_Event])
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise BadEvents(f"no batch of KV events: {error}") from None
    if len(found) > MAX_EVENTS:
        raise BadEvents(f"{len(found)} events in one message, at most {MAX_EVENTS}")
    stored = sum(len(e.block_hashes) for e in found if e.type == "BlockStored")
    removed = sum(len(e.block_hashes) for e in found if e.type == "BlockRemoved")
    return Summary(stored, removed, any(e.type == "AllBlocksCleared" for e in found))


class Step(Enum):
    """How a sequence number follows the last one."""

    NEXT = "next"
    GAP = "gap"  # messages between were lost
    AGAIN = "again"  # it started anew: another engine process


class Sequence:
    """Sequence numbers of one publisher."""

    def __init__(self) -> None:
        self.wanted: int | None = None  # None: nothing has been heard yet

    def take(self, number: int) -> Step:
        """Classify a number and wait for the one after it."""
        wanted, self.wanted = self.wanted, number + 1
        if wanted is None or number == wanted:
            return Step.NEXT
        return Step.GAP if number > wanted else Step.AGAIN


def number_of(frame: bytes) -> int:
    """The sequence number in a frame: 8 bytes, big endian; raises BadEvents."""
    if len(frame) != 8:
        raise BadEvents(f"a sequence number of {len(frame)} bytes, wanted 8")
    return int.from_bytes(frame, "big")
