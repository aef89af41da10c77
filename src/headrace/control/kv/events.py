"""vLLM's KV-cache events, read; pure. SGLang sends the same.

A message is (topic, sequence number, msgpack). Events are maps, or arrays in older releases.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import msgspec

from headrace.errors import HeadraceError

MAX_EVENTS = 100_000  # of one message
MAX_BLOCK_TOKENS = 1 << 16
END_OF_REPLAY = b"\xff" * 8
IN_GPU = (None, "GPU", "gpu")
FIRST_GROUP = (None, 0)  # of a model with several kinds of attention: one tells for all

Hash = int | bytes


class BadEvents(HeadraceError):
    """A message that is none of vLLM's."""


class Stored(msgspec.Struct, frozen=True):
    """Blocks entered the cache, one behind the other; `parent_block_hash` None: a prompt begins."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None = None
    token_ids: list[Annotated[int, msgspec.Meta(ge=0)]] = []
    block_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCK_TOKENS)] = 1
    lora_id: Any = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None  # by block: what else its hash is made of
    group_idx: int | None = None


class Removed(msgspec.Struct, frozen=True):
    """Blocks left the cache."""

    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None
    remaining_copy_counts: list[int] | None = None  # by block


class Cleared(msgspec.Struct, frozen=True):
    """All blocks left."""

    medium: str | None = None
    group_idx: int | None = None


Event = Stored | Removed | Cleared
KINDS: dict[Any, type[Event]] = {
    "BlockStored": Stored,
    "BlockRemoved": Removed,
    "AllBlocksCleared": Cleared,
}
_decoder = msgspec.msgpack.Decoder(tuple[Any, ...])


def read(payload: bytes) -> list[Event]:
    """The events of a message, `[time, [event, …], rank?]`; raises BadEvents.

    Left out are events of unknown kinds, of other memory than the GPU's, and of all attention
    groups but the first.
    """
    try:
        _, events, *_ = _decoder.decode(payload)
        if len(events) > MAX_EVENTS:
            raise ValueError(f"{len(events)} events in one message, at most {MAX_EVENTS}")
        found = [event for event in map(_read_one, events) if event is not None]
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise BadEvents(f"no batch of KV events: {error}") from None
    return [e for e in found if e.medium in IN_GPU and e.group_idx in FIRST_GROUP]


def _read_one(event: Any) -> Event | None:
    kind = KINDS.get(event["type"] if isinstance(event, dict) else event[0])
    if kind is None:
        return None
    if not isinstance(event, dict):
        event = dict(zip(kind.__struct_fields__, event[1:], strict=False))
    return msgspec.convert(event, kind)


class Step(Enum):
    """How a sequence number follows the last one."""

    FIRST = "first"  # nothing has been heard before
    NEXT = "next"
    GAP = "gap"  # messages between were lost
    AGAIN = "again"  # it started anew: another engine process


class Sequence:
    """Sequence numbers of one publisher."""

    def __init__(self) -> None:
        self.wanted: int | None = None  # None: nothing has been heard

    def take(self, number: int) -> Step:
        """Classify a number and wait for the one after it."""
        wanted, self.wanted = self.wanted, number + 1
        if wanted is None:
            return Step.FIRST
        if number == wanted:
            return Step.NEXT
        return Step.GAP if number > wanted else Step.AGAIN


def number_of(frame: bytes) -> int:
    """The sequence number in a frame: 8 bytes, big endian; raises BadEvents."""
    if len(frame) != 8:
        raise BadEvents(f"a sequence number of {len(frame)} bytes, wanted 8")
    return int.from_bytes(frame, "big")
