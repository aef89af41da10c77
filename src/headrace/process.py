"""One data-plane process: attaches the segment, follows what control publishes, listens, drains.

`python -m headrace.process` with descriptors of the segment, the alarm and the listeners is started
by the supervisor; with `--processes 0` the same DataPlane runs in the control plane's loop.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence

import uvloop

from headrace.config import Observability
from headrace.core.segment import Segment
from headrace.observe import logs
from headrace.proxy.downstream import Downstream
from headrace.proxy.plane import Plane
from headrace.tls import ServerTls

log = logging.getLogger("headrace.process")

TICK_S = 0.05
FIRST_BLOB_TIMEOUT_S = 30.0
PR_SET_PDEATHSIG = 1
# The supervisor's word. SIGTERM is not: an init system sends it to every process of the service,
# and this one accepts until the supervisor's settle time is over.
STOP = signal.SIGUSR2
# Collections are rare, not off: a cycle that slips in must not stay for ever.
GC_THRESHOLDS = (50_000, 20, 20)


class DataPlane:
    """The data port of one process; all methods are called in its loop."""

    def __init__(
        self, segment: Segment, index: int, listen_sockets: Sequence[socket.socket]
    ) -> None:
        self.segment = segment
        self.index = index
        self.sockets = list(listen_sockets)
        self.servers: list[asyncio.Server] = []
        self.plane: Plane | None = None
        self.tls: ServerTls | None = None
        self._blob_seen = 0
        self._ticking: asyncio.TimerHandle | None = None
        self._changing: asyncio.Task[None] | None = None
        self._accepts = False
        self._stopped = False

    async def start(self) -> None:
        """Wait for the first snapshot, then listen."""
        loop = asyncio.get_running_loop()
        plane = self.plane = Plane(self.segment, self.index, loop)
        deadline = time.monotonic() + FIRST_BLOB_TIMEOUT_S
        while not plane.follow():
            if time.monotonic() > deadline:
                raise TimeoutError("no configuration from the control plane")
            await asyncio.sleep(0.01)
        server = plane.config.server
        if server.tls_cert is not None:
            self.tls = ServerTls(server.tls_cert, server.tls_key)
        plane.accepting = self._set_accepting
        await self._listen()
        self._tick()

    def leave(self) -> None:
        """A successor accepts: close our copies of the listeners, end connections gently."""
        self._close_listeners()
        assert self.plane is not None
        self.plane.leave()

    def stop_accepting(self) -> None:
        """Close the listeners; idle clients go, the others close after their answer."""
        self._close_listeners()
        assert self.plane is not None
        self.plane.stop()

    def _close_listeners(self) -> None:
        self._stopped = True
        self._set_accepting(False)
        for listener in self.sockets:
            listener.close()

    async def drain(self, timeout_s: float) -> None:
        """Wait until no request is left, at most so long; then cut the rest."""
        assert self.plane is not None
        deadline = time.monotonic() + timeout_s
        while self.plane.busy() and time.monotonic() < deadline:
            await asyncio.sleep(TICK_S)
        if self._ticking is not None:
            self._ticking.cancel()
        self.plane.close()
        await asyncio.sleep(0)

    def _tick(self) -> None:
        assert self.plane is not None
        try:
            self.plane.tick()
            self._renew_tls()
        except Exception:
            log.exception("a tick failed")
        self._ticking = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _renew_tls(self) -> None:
        """Look at the certificate whenever control has published something, as a reload does."""
        plane = self.plane
        if self.tls is not None and plane is not None and plane.blob_seen != self._blob_seen:
            self._blob_seen = plane.blob_seen
            self.tls.renew(plane.config.server.tls_cert, plane.config.server.tls_key)

    # Closing a duplicate leaves the socket listening: connections wait in its backlog meanwhile.

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        plane = self.plane
        context = None if self.tls is None else self.tls.context
        assert plane is not None, "start() makes it"
        self._accepts = True
        self.servers = [
            await loop.create_server(
                lambda: Downstream(plane), sock=listener.dup(), ssl=context, backlog=2048
            )
            for listener in self.sockets
        ]

    def _set_accepting(self, wanted: bool) -> None:
        if wanted == self._accepts or (wanted and self._stopped):
            return
        self._accepts = wanted
        if wanted:
            self._changing = asyncio.ensure_future(self._listen())
            return
        if not self._stopped:
            log.warning("no room for further connections: accepting pauses")
        for server in self.servers:
            server.close()
        self.servers = []


def _die_with_parent() -> None:
    """SIGTERM when the supervisor dies; at once if it is gone already."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


async def _serve(segment: Segment, index: int, listeners: Sequence[socket.socket]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    parent = os.getppid()

    def terminate() -> None:
        """The supervisor is dead, or the whole group is being told: then the supervisor decides."""
        if os.getppid() == parent:
            return
        if stop.is_set():
            os._exit(0)
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    loop.add_signal_handler(STOP, stop.set)
    data_plane = DataPlane(segment, index, listeners)
    await data_plane.start()
    assert data_plane.plane is not None
    logs.configure(data_plane.plane.config.observability)
    loop.add_signal_handler(signal.SIGUSR1, data_plane.leave)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await stop.wait()
    data_plane.stop_accepting()
    assert data_plane.plane is not None
    await data_plane.drain(data_plane.plane.config.server.drain_timeout_s)


def main() -> int:
    """Entry of a data-plane process; returns the exit code."""
    parser = argparse.ArgumentParser(prog="headrace.process")
    parser.add_argument("--segment-fd", type=int, required=True)
    parser.add_argument("--alarm-fd", type=int, required=True)
    parser.add_argument("--listen-fds", type=int, nargs="+", required=True)
    parser.add_argument("--index", type=int, required=True)
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    logs.configure(Observability())  # until the configuration is there
    segment = Segment.attach(args.segment_fd, args.alarm_fd)
    listeners = [socket.socket(fileno=fd) for fd in args.listen_fds]
    for listener in listeners:
        listener.setblocking(False)
    uvloop.run(_serve(segment, args.index, listeners))
    return 0


if __name__ == "__main__":
    sys.exit(main())
