"""Listens to the KV events of one replica over ZMQ (extra `headrace[kv-events]`).

A cache that was cleared, an engine that started anew, and messages that are lost for good make the
prefix table forget the replica; everything else only counts.
"""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.control.kv_events import (
    END_OF_REPLAY,
    BadEvents,
    Sequence,
    Step,
    Summary,
    number_of,
    read,
)

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

log = logging.getLogger("headrace.kv_events")

REPLAY_TIMEOUT_S = 2.0
WITHOUT_ZMQ_S = 3600.0  # between reminders
MAX_MESSAGE_BYTES = 16 << 20
QUEUED_MESSAGES = 10_000  # beyond it ZMQ drops, which the sequence numbers show


class Subscriber:
    """One replica's events; `turn` takes one message."""

    def __init__(self, control: Control, member: Member) -> None:
        self._control = control
        self._member = member
        self._sequence = Sequence()
        self._socket: Any = None
        self.counts = member.kv_events = {"stored_blocks": 0, "removed_blocks": 0, "cleared": 0}

    async def turn(self) -> None:
        """Wait for one message and take it in."""
        if find_spec("zmq") is None:
            log.error("control.kv_events_port: needs `pip install headrace[kv-events]`")
            await asyncio.sleep(WITHOUT_ZMQ_S)
            return
        if self._socket is None:
            self._socket = self._open("SUB", self._control.config.control.kv_events_port)
            self._socket.subscribe(b"")
        frames = await self._socket.recv_multipart()
        try:
            await self._take(frames)
        except BadEvents as error:
            self._control.tally.bad_samples["kv_events"] += 1
            log.debug("%s: %s", self._member.id, error)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close(0)

    async def _take(self, frames: list[bytes]) -> None:
        if len(frames) != 3:
            raise BadEvents(f"{len(frames)} frames, wanted 3")
        number, summary = number_of(frames[1]), read(frames[2])
        wanted = self._sequence.wanted
        step = self._sequence.take(number)
        if step is Step.AGAIN:
            self._forget("its events start anew")
        elif step is Step.GAP and wanted is not None and not await self._replay(wanted, number):
            self._forget(f"events {wanted} to {number - 1} are lost")
        self._count(summary)

    def _count(self, summary: Summary) -> None:
        self.counts["stored_blocks"] += summary.stored
        self.counts["removed_blocks"] += summary.removed
        if summary.is_cleared:
            self.counts["cleared"] += 1
            self._forget("its prefix cache was cleared")

    def _forget(self, why: str) -> None:
        log.info("replica %s: %s; what it was known to hold is forgotten", self._member.id, why)
        self._control.take_empty_cache(self._member)

    async def _replay(self, first: int, end: int) -> bool:
        """Take in the messages from `first` up to and without `end`; False if one is missing."""
        port = self._control.config.control.kv_replay_port
        if port is None:
            return False
        socket = self._open("DEALER", port)
        try:
            async with asyncio.timeout(REPLAY_TIMEOUT_S):
                await socket.send_multipart([b"", first.to_bytes(8, "big")])
                while True:
                    *_, number, payload = await socket.recv_multipart()
                    if number == END_OF_REPLAY or number_of(number) >= end:
                        return first == end
                    if number_of(number) != first:
                        return False  # its buffer does not reach back so far
                    self._count(read(payload))
                    first += 1
        except (TimeoutError, ValueError, BadEvents) as error:
            log.warning("replica %s: no replay of KV events: %r", self._member.id, error)
            return False
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
