"""Listens to the KV events of one replica over ZMQ (extra `headrace[kv-events]`).

What its engine stores and drops goes into the prefix table, whoever asked for it. A cache that was
cleared, an engine that started anew, and messages that are lost for good make the table forget the
replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.control.fetch import FetchError
from headrace.control.kv.chains import Chains, Change
from headrace.control.kv.events import (
    END_OF_REPLAY,
    BadEvents,
    Cleared,
    Event,
    Sequence,
    Step,
    Stored,
    number_of,
    read,
)
from headrace.core.scan import prefix_root
from headrace.request import BLOCK_TOKENS

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

log = logging.getLogger("headrace.kv_events")

REPLAY_TIMEOUT_S = 2.0
RELEARN_S = 600.0  # a template may contain the date
UNANSWERED_S = 10.0  # before a replica that does not answer is asked again
NOT_YET_S = 0.5  # between looks at a replica that has not told its models
WITHOUT_ZMQ_S = 3600.0  # between reminders
MAX_MESSAGE_BYTES = 16 << 20
QUEUED_MESSAGES = 10_000  # beyond it ZMQ drops, which the sequence numbers show


class Subscriber:
    """One replica's events; `turn` takes one message."""

    def __init__(self, control: Control, member: Member) -> None:
        self._control = control
        self._member = member
        self._sequence = Sequence()
        self._chains = Chains(self._roots)
        self._entered_tokens = 0  # of a block of the table that is not full yet
        self._generation = member.generation  # whose cache the chains are
        self._learn_at_s = 0.0
        self._learned_for: tuple[set[str], str | None] = (set(), None)  # models, tokenizer
        self._is_learned = False
        self._socket: Any = None
        self.counts: dict[str, Any] = {"stored_blocks": 0, "removed_blocks": 0, "cleared": 0}
        member.kv_events = self.counts

    async def turn(self) -> None:
        """Wait for one message and take it in."""
        if self._socket is None and find_spec("zmq") is None:
            log.error("control.kv_events_port: needs `pip install headrace[kv-events]`")
            await asyncio.sleep(WITHOUT_ZMQ_S)
            return
        if not await self._learn():
            await asyncio.sleep(NOT_YET_S)
            return
        if self._socket is None:
            own, common = self._member.config, self._control.config.control
            self._socket = self._open("SUB", own.kv_events_port or common.kv_events_port)
            self._socket.subscribe(b"")
        frames = await self._socket.recv_multipart()
        try:
            await self._take(frames)
        except BadEvents as error:
            self._control.tally.bad_samples["kv_events"] += 1
            log.debug("%s: %s", self._member.id, error)
        await asyncio.sleep(0)  # a message that is there already is received without a pause

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close(0)

    async def _learn(self) -> bool:
        """Learn how the replica's tokens are read, if it is time; False: not known yet."""
        member = self._member
        learn_for = set(member.cards), self._control.readings.path_of(member)
        is_due = time.monotonic() >= self._learn_at_s or learn_for != self._learned_for
        if not member.cards or not is_due:
            return self._is_learned
        self._learned_for = learn_for
        try:
            reading, outcome = await self._control.readings.of(member)
        except FetchError:
            self._learn_at_s = time.monotonic() + UNANSWERED_S
            return self._is_learned
        self._learn_at_s = time.monotonic() + RELEARN_S
        self._is_learned = True
        self._chains.reading = reading
        if self.counts.get("text") != outcome:
            self.counts["text"] = outcome
            if reading is None and self._control.config.control.kv_tokenizers:
                log.warning("replica %s: its KV events are not read: %s", member.id, outcome)
        return True

    def _roots(self, lora: str | None, salt: bytes | None) -> tuple[int, ...]:
        """Of the names under which a prompt in this cache may be asked for."""
        cards = self._member.cards
        names = [lora] if lora else [name for name, card in cards.items() if not card.get("parent")]
        return tuple(prefix_root(name.encode(), None, salt) for name in names)

    async def _take(self, frames: list[bytes]) -> None:
        if len(frames) != 3:
            raise BadEvents(f"{len(frames)} frames, wanted 3")
        number, events = number_of(frames[1]), read(frames[2])
        if self._generation != self._member.generation:  # control has seen the engine restart
            await self._begin_anew()
            self._sequence = Sequence()
        wanted = self._sequence.wanted or 0
        step = self._sequence.take(number)
        is_whole = step is Step.NEXT or (step is Step.GAP and await self._replay(wanted, number))
        if step is Step.AGAIN:
            self._forget("its events start anew")
            await self._begin_anew()
        elif step is Step.GAP and not is_whole:
            self._forget(f"events {wanted} to {number - 1} are lost")
        if not is_whole:
            await self._catch_up(number)
        self._apply(events)

    async def _begin_anew(self) -> None:
        """The engine is another process: with an empty cache, and perhaps another template."""
        self._generation = self._member.generation
        self._chains.clear()
        self._is_learned, self._learn_at_s = False, 0.0
        while not await self._learn():
            await asyncio.sleep(NOT_YET_S)

    def _apply(self, events: list[Event]) -> None:
        counts = self.counts
        for event in events:
            if isinstance(event, Cleared):
                counts["cleared"] += 1
                self._forget("its prefix cache was cleared")
            elif isinstance(event, Stored):
                counts["stored_blocks"] += len(event.block_hashes)
                self._write(self._chains.store(event))
            else:
                counts["removed_blocks"] += len(event.block_hashes)
                self._write(self._chains.remove(event))
        counts["known_blocks"] = len(self._chains)
        counts["unread_blocks"] = self._chains.unread_blocks
        if not self._member.is_followed:
            self._member.is_followed = True
            self._control.refresh(self._member)

    def _write(self, change: Change) -> None:
        segment, slot = self._control.segment, self._member.slot
        tokens = self._entered_tokens + change.tokens
        blocks, self._entered_tokens = divmod(tokens, BLOCK_TOKENS)
        segment.store_prefixes(slot, change.stored, blocks)
        segment.remove_prefixes(slot, change.removed)

    def _forget(self, why: str) -> None:
        log.info("replica %s: %s; what it was known to hold is forgotten", self._member.id, why)
        self._chains.clear()
        self._control.take_empty_cache(self._member)
        self._generation = self._member.generation

    async def _catch_up(self, end: int) -> None:
        """What the cache holds from before we listened, as far back as the engine remembers."""
        if end == 0:
            return
        found = Sequence()
        async with contextlib.aclosing(self._missed(0, end)) as missed:
            async for number, events in missed:
                if found.take(number) is Step.GAP:
                    self._forget(f"events before {number} are lost")
                self._apply(events)
        if found.take(end) is Step.GAP:
            self._forget(f"events before {end} are lost")

    async def _replay(self, first: int, end: int) -> bool:
        """Take in the messages from `first` up to and without `end`; False if one is missing."""
        async with contextlib.aclosing(self._missed(first, end)) as missed:
            async for number, events in missed:
                if number != first:
                    return False  # its buffer does not reach back so far
                self._apply(events)
                first += 1
        return first == end

    async def _missed(self, first: int, end: int) -> AsyncGenerator[tuple[int, list[Event]]]:
        """The messages from `first` to `end` that the engine still has; ends early on trouble."""
        own, common = self._member.config, self._control.config.control
        port = own.kv_replay_port or common.kv_replay_port
        if port is None:
            return
        socket = self._open("DEALER", port)
        try:
            await socket.send_multipart([b"", first.to_bytes(8, "big")])
            while True:
                async with asyncio.timeout(REPLAY_TIMEOUT_S):
                    *_, frame, payload = await socket.recv_multipart()
                if frame == END_OF_REPLAY or number_of(frame) >= end:
                    return
                yield number_of(frame), read(payload)
                await asyncio.sleep(0)
        except (TimeoutError, ValueError, BadEvents) as error:
            log.warning("replica %s: no replay of KV events: %r", self._member.id, error)
        finally:
            socket.close(0)

    def _open(self, kind: str, port: int | None) -> Any:
        import zmq
        import zmq.asyncio

        socket = zmq.asyncio.Context.instance().socket(getattr(zmq, kind))
        socket.set(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        socket.set(zmq.RCVHWM, QUEUED_MESSAGES)
        host = urlsplit(self._member.url).hostname or ""
        if ":" in host:
            socket.set(zmq.IPV6, 1)
            host = f"[{host}]"
        socket.connect(f"tcp://{host}:{port}")
        return socket
