"""An upgrade in place: the running gateway gives its listening sockets to its successor.

Both meet at a Unix socket in a directory that only their user may enter. The running gateway sends
the descriptors of every listener; the successor says when it serves on them; only then does the
running one stop to accept. No listener is ever closed by the last one that holds it, so nothing
that waits in a backlog is reset. A successor that fails before it serves changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.config import Server
from headrace.errors import ConfigError

log = logging.getLogger("headrace.handover")

TAKEN = b"taken"
MAX_MESSAGE_BYTES = 65536
MAX_DESCRIPTORS = 250  # of one message, below the kernel's SCM_MAX_FD (253)
ANSWER_TIMEOUT_S = 5.0


class Hello(msgspec.Struct, frozen=True):
    """What goes with the descriptors: data listeners first, then those of the admin port."""

    pid: int
    data_listeners: int
    serving: int  # replicas that take traffic


class Inheritance(NamedTuple):
    """What a successor was given; `channel` stays open until it says that it serves."""

    hello: Hello
    data: list[socket.socket]
    admin: list[socket.socket]
    channel: socket.socket

    def take(self) -> None:
        """Say that the listeners are served here: the other side stops to accept."""
        with self.channel:
            self.channel.sendall(TAKEN)


def path_of(server: Server) -> Path:
    """Where gateways with this admin port meet: the configured path, or one of this user's own."""
    if server.take_over_path is not None:
        return Path(server.take_over_path)
    names = ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "TMPDIR")
    folder = Path(next((found for n in names if (found := os.environ.get(n))), "/tmp"))
    return folder / f"headrace-{os.geteuid()}" / f"{server.admin_host}-{server.admin_port}.sock"


def request(path: Path) -> Inheritance | None:
    """Ask the running gateway for its listeners; None when no gateway is there.

    Raises ConfigError when what is there is not a gateway of this user.
    """
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.settimeout(ANSWER_TIMEOUT_S)
    try:
        _check_folder(path.parent)
        channel.connect(str(path))
        _check_peer(channel)
        message, descriptors, _, _ = socket.recv_fds(channel, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS)
        hello = msgspec.json.decode(message, type=Hello)
    except (FileNotFoundError, ConnectionRefusedError):
        channel.close()
        return None
    except (OSError, msgspec.DecodeError) as error:
        channel.close()
        raise ConfigError(f"--take-over: {path}: {error}") from error
    sockets = [socket.socket(fileno=fd) for fd in descriptors]
    for inherited in sockets:
        inherited.setblocking(False)
    count = hello.data_listeners
    return Inheritance(hello, sockets[:count], sockets[count:], channel)


def check_address(inherited: Sequence[socket.socket], host: str, port: int, key: str) -> None:
    """Raise ConfigError if what was inherited does not listen where the configuration says."""
    if not inherited:
        return
    wanted = {
        tuple(address[:2])
        for *_, address in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    }
    found = inherited[0].getsockname()[:2]
    if tuple(found) not in wanted:
        raise ConfigError(
            f"--take-over: the running gateway listens on {found[0]}:{found[1]}, but {key} and its"
            f" host say {host}:{port}; a listener cannot be moved"
        )


class Offer:
    """Waits for a successor; `on_taken` is called once, when one serves."""

    def __init__(
        self,
        path: Path,
        listeners: Callable[[], tuple[list[socket.socket], list[socket.socket], int]],
        on_taken: Callable[[], None],
    ) -> None:
        self.path = path
        self._listeners = listeners  # data listeners, admin listeners, replicas that serve
        self._on_taken = on_taken
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Listen; where no socket can be made there is no upgrade in place, and the log says so."""
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with contextlib.suppress(FileExistsError):
                self.path.parent.mkdir(mode=0o700, parents=True)
            _check_folder(self.path.parent)
            listener.bind(str(fresh))
            fresh.chmod(0o600)
            listener.listen(4)
            fresh.replace(self.path)  # a socket of a gateway that is gone, or hands over, gives way
        except OSError as error:
            listener.close()
            log.info("no --take-over of this gateway: %s: %s", self.path, error)
            return
        listener.setblocking(False)
        self._socket = listener
        self._task = asyncio.ensure_future(self._wait(listener))

    def close(self, *, is_taken: bool = False) -> None:
        """Stop waiting; the path belongs to the successor if there is one."""
        if self._socket is None:
            return
        if self._task is not None and not is_taken:
            self._task.cancel()
        self._socket.close()
        self._socket = None
        if not is_taken:
            with contextlib.suppress(OSError):
                self.path.unlink()

    async def _wait(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            peer, _ = await loop.sock_accept(listener)
            with peer:
                try:
                    _check_peer(peer)
                    self._send(peer)
                    taken = await loop.sock_recv(peer, len(TAKEN)) == TAKEN
                except OSError as error:
                    log.warning("a hand-over failed: %s", error)
                    continue
            if taken:
                self.close(is_taken=True)
                self._on_taken()
                return
            log.warning("the successor ended before it served; this gateway goes on")

    def _send(self, peer: socket.socket) -> None:
        data, admin, serving = self._listeners()
        hello = Hello(os.getpid(), len(data), serving)
        descriptors = [listener.fileno() for listener in (*data, *admin)]
        socket.send_fds(peer, [msgspec.json.encode(hello)], descriptors)


def _check_folder(folder: Path) -> None:
    """Raise OSError unless the directory is ours alone."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a directory that only uid {os.geteuid()} may write")


def _check_peer(peer: socket.socket) -> None:
    """Raise OSError unless the other side runs as our user."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid != os.geteuid():
        raise PermissionError(f"the other side runs as uid {uid}, this gateway as {os.geteuid()}")
