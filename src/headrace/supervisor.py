"""The first process: owns segment and listeners, runs control, keeps the processes alive.

Each process gets one SO_REUSEPORT socket that this one opened and keeps: connections that arrive
while a process is being restarted wait in its backlog instead of being reset.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time

from headrace import config as configuration
from headrace import handover, orphans
from headrace.config import Config
from headrace.control.loop import Control
from headrace.core.segment import Segment
from headrace.errors import ConfigError

log = logging.getLogger("headrace.supervisor")

BACKLOG = 2048
RESTART_FIRST_S = 0.05
RESTART_MAX_S = 5.0
PROVE_TIMEOUT_S = 15.0  # for the first replica of a gateway that takes over
HEALTHY_AFTER_S = 10.0  # a process that lived this long starts again with the first pause


def raise_descriptor_limit() -> int:
    """Lift the soft limit of open files to the hard one; returns the limit in force."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_listeners(host: str, port: int, count: int, *, joins: bool = False) -> list[socket.socket]:
    """`count` listening SO_REUSEPORT sockets on one address; ConfigError when it cannot be had.

    A bind without SO_REUSEPORT comes first: with it, a second gateway would silently share the
    port of the first. `joins`: that is what is wanted.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if not joins:
            with socket.socket(family, kind, proto) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        listeners = []
        for _ in range(count):
            listener = socket.socket(family, kind, proto)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6 and host in ("::", ""):
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
            listeners.append(listener)
        return listeners
    except OSError as error:
        reason = "in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise ConfigError(f"server.port: cannot listen on {host}:{port}: {reason}") from error


def share_out(
    server: configuration.Server, inherited: list[socket.socket], count: int
) -> list[list[socket.socket]]:
    """The listeners of each of `count` processes: every inherited one, and more where they lack.

    None may be left out, even if there are fewer processes than before: what waits in the backlog
    of a listener that nobody serves is lost.
    """
    handover.check_address(inherited, server.host, server.port, "server.port")
    lacking = count - len(inherited)
    listeners = inherited + open_listeners(server.host, server.port, lacking, joins=bool(inherited))
    return [listeners[index::count] for index in range(count)]


class Child:
    """One data-plane process and its restarts."""

    def __init__(self, index: int, listeners: list[socket.socket], segment: Segment) -> None:
        self.index = index
        self.listeners = listeners
        self.segment = segment
        self.process: asyncio.subprocess.Process | None = None
        self.stopping = False

    async def keep_alive(self) -> None:
        """Start the process again whenever it ends, until `stop`."""
        pause = RESTART_FIRST_S
        while not self.stopping:
            started = time.monotonic()
            try:
                self.process = await self._spawn()
            except OSError as error:  # no memory, no rights to run the interpreter …
                code = str(error)
            else:
                code = str(await self.process.wait())
                self.segment.retire(self.index)
            if self.stopping:
                return
            if time.monotonic() - started > HEALTHY_AFTER_S:
                pause = RESTART_FIRST_S
            log.error("process %d ended with code %s; restart in %.2f s", self.index, code, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RESTART_MAX_S)

    async def _spawn(self) -> asyncio.subprocess.Process:
        listeners = [listener.fileno() for listener in self.listeners]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headrace.process",
            "--segment-fd",
            str(self.segment.fd),
            "--alarm-fd",
            str(self.segment.alarm_fd),
            "--listen-fds",
            *map(str, listeners),
            "--index",
            str(self.index),
            pass_fds=(self.segment.fd, self.segment.alarm_fd, *listeners),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=False,
        )

    @property
    def pid(self) -> int | None:
        """Of the process started last; None before the first."""
        return None if self.process is None else self.process.pid

    def signal(self, signum: int) -> None:
        """Send a signal if the process lives; it is not started again."""
        self.stopping = True
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signum)


class Supervisor:
    """Life of a gateway from the bound port to the last stream; `run` returns the exit code."""

    def __init__(self, config: Config, args: argparse.Namespace) -> None:
        self.config = config
        self.args = args
        self.count = configuration.process_count(config.server)
        self.terminations = 0
        self.stop = asyncio.Event()
        self.is_taken_over = False
        self.children: list[Child] = []

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or a successor, then drain."""
        server = self.config.server
        limit = raise_descriptor_limit()
        elder = self._elder()
        shares = share_out(server, elder.data if elder else [], max(self.count, 1))
        listeners = [listener for share in shares for listener in share]
        segment = Segment.create(max(self.count, 1), self.config.routing.prefix_table_bytes)
        control = Control(self.config, segment, self.args)
        await control.start(elder.admin if elder else ())
        self._handle_signals(segment, control)
        if elder is not None:
            await self._wait_serving(segment, control, elder.hello.serving)
        plane = await self._start_planes(segment, shares)
        await self._wait_ready(segment)
        gc.collect()
        gc.freeze()  # what start-up made stays: later collections need not walk it
        if elder is not None:
            elder.take()
        offer = self._offer(segment, control, listeners)
        log.info("open files: limit %d", limit)
        self._announce()
        if os.getpid() == 1:
            control.spawn(orphans.reap_forever(self._own_pids))
        await self.stop.wait()
        offer.close(is_taken=self.is_taken_over)
        await self._drain(segment, control, listeners, plane)
        await control.close()
        return 0

    def _elder(self) -> handover.Inheritance | None:
        """The gateway to take over from, if that is wanted and one runs."""
        if not getattr(self.args, "take_over", False):
            return None
        server = self.config.server
        path = handover.path_of(server)
        elder = handover.request(path)
        if elder is None:
            log.warning("--take-over: no gateway at %s; starting as usual", path)
            return None
        handover.check_address(elder.admin, server.admin_host, server.admin_port, "admin_port")
        return elder

    async def _wait_serving(self, segment: Segment, control: Control, needed: int) -> None:
        """Until replicas are proven: a successor that knew of none would refuse what it takes."""
        deadline = time.monotonic() + PROVE_TIMEOUT_S
        while not self.stop.is_set() and time.monotonic() < deadline:
            states = [member.state for member in control.registry.members.values()]
            if (segment.serving or not needed) and "warming" not in states:
                return
            await asyncio.sleep(0.02)
        if needed and not segment.serving:
            raise ConfigError(
                f"--take-over: no replica has answered for {PROVE_TIMEOUT_S:g} s, but the running"
                f" gateway has {needed}; it goes on"
            )

    def _offer(
        self, segment: Segment, control: Control, listeners: list[socket.socket]
    ) -> handover.Offer:
        """Let a successor take the listeners."""

        def taken() -> None:
            self.is_taken_over = True
            self.stop.set()

        def given() -> tuple[list[socket.socket], list[socket.socket], int]:
            return listeners, control.admin_listeners, segment.serving

        offer = handover.Offer(handover.path_of(self.config.server), given, taken)
        if self.config.server.admin_port or self.config.server.take_over_path:
            offer.open()
        return offer

    async def _start_planes(self, segment: Segment, shares: list[list[socket.socket]]) -> object:
        if self.count == 0:
            from headrace.process import DataPlane

            plane = DataPlane(segment, 0, shares[0])
            await plane.start()
            return plane
        self.children = [Child(i, share, segment) for i, share in enumerate(shares)]
        self.tasks = [asyncio.create_task(child.keep_alive()) for child in self.children]
        return None

    async def _wait_ready(self, segment: Segment) -> None:
        """Until every process has taken up the configuration (its first beat)."""
        while not self.stop.is_set():
            seen = [segment.process(i)["blob_seen"] for i in range(max(self.count, 1))]
            if all(seen):
                return
            await asyncio.sleep(0.01)

    def _own_pids(self) -> set[int]:
        return {child.pid for child in self.children if child.pid is not None}

    def _announce(self) -> None:
        server = self.config.server
        scheme = "https" if server.tls_cert else "http"

        def address(host: str, port: int) -> str:
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

        print(
            f"headrace ready: {scheme}://{address(server.host, server.port)}"
            f" (admin http://{address(server.admin_host, server.admin_port)})"
            f" policy={self.config.routing.policy} replicas={len(self.config.replicas)}"
            f" processes={self.count}",
            file=sys.stderr,
            flush=True,
        )

    def _handle_signals(self, segment: Segment, control: Control) -> None:
        loop = asyncio.get_running_loop()

        def terminate() -> None:
            self.terminations += 1
            if self.terminations > 1:
                for child in self.children:
                    child.signal(signal.SIGKILL)
                os._exit(0)
            segment.draining = True
            self.stop.set()

        loop.add_signal_handler(signal.SIGTERM, terminate)
        loop.add_signal_handler(signal.SIGINT, terminate)
        loop.add_signal_handler(signal.SIGHUP, control.reload_soon)

    async def _drain(
        self,
        segment: Segment,
        control: Control,
        listeners: list[socket.socket],
        plane: object,
    ) -> None:
        """Accept for the settle time, then close the listeners and wait for the streams.

        After a hand-over the successor accepts; what settles is connections that are still open.
        """
        server = control.config.server
        if self.is_taken_over:
            log.info("a successor has taken over; draining")
            await self._leave(control, listeners, plane)
        await asyncio.gather(asyncio.sleep(server.drain_settle_s), control.stop_acting())
        for child in self.children:
            child.signal(signal.SIGUSR2)
        for listener in listeners:
            listener.close()
        if plane is not None:
            plane.stop_accepting()  # type: ignore[attr-defined]
            await plane.drain(server.drain_timeout_s)  # type: ignore[attr-defined]
            return
        _, late = await asyncio.wait(self.tasks, timeout=server.drain_timeout_s + 1.0)
        if late:
            for child in self.children:
                child.signal(signal.SIGKILL)
            await asyncio.wait(self.tasks, timeout=5.0)

    async def _leave(self, control: Control, listeners: list[socket.socket], plane: object) -> None:
        for child in self.children:
            child.signal(signal.SIGUSR1)
        for listener in listeners:
            listener.close()
        if plane is not None:
            plane.leave()  # type: ignore[attr-defined]
        control.spawn(control.leave())
