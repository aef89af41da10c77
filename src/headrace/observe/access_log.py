"""The access log: one JSON line a request, written by a thread so that a slow disk delays nobody.

No prompt text, no keys, no header but the request id. JSON escaping keeps every record on one line.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from logging.handlers import RotatingFileHandler

from headrace.errors import ConfigError

QUEUE_BYTES = 16 << 20
MAX_FILE_BYTES = 100 << 20
KEPT_FILES = 5
CLOSE_TIMEOUT_S = 5.0


class _Stdout:
    def write(self, lines: bytes) -> None:
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Others write there too."""


class _File(RotatingFileHandler):
    """Takes whole batches in place of log records; the names of rotated files are the library's."""

    def write(self, lines: bytes) -> None:
        if self.stream is None:
            self.stream = self._open()
        size = os.fstat(self.stream.fileno()).st_size
        if size and size + len(lines) > self.maxBytes:
            self.doRollover()
        self.stream.buffer.write(lines)
        self.stream.flush()

    def close(self) -> None:
        """The next line opens it again; what cannot be written any more is given up."""
        with contextlib.suppress(OSError, ValueError):
            super().close()


class AccessLog:
    """A bounded queue before stdout or a size-rotated file.

    Raises ConfigError when the file cannot be opened.
    """

    def __init__(self, target: bool | str, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.target = target
        self._overflowed = 0  # lines; this and `_added_bytes`: written by the caller's thread
        self._added_bytes = 0
        self._failed = 0  # lines; this and `_done_bytes`: written by the log's own thread
        self._done_bytes = 0
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._file = _open(target, max_bytes)
        self._reopens = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that did not fit into the queue or could not be written."""
        return self._overflowed + self._failed

    @property
    def queued_bytes(self) -> int:
        """What waits to be written."""
        return self._added_bytes - self._done_bytes

    def add(self, lines: bytes) -> None:
        """Queue some whole lines; never blocks."""
        if self.queued_bytes + len(lines) > QUEUE_BYTES:
            self._overflowed += lines.count(b"\n")
        else:
            self._added_bytes += len(lines)
            self._queue.put(lines)

    def reopen(self) -> None:
        """Open the file again before the next line: another program may have moved it away."""
        self._reopens.set()

    def close(self) -> None:
        """Write what is queued, then close the file."""
        self._queue.put(None)
        self._thread.join(timeout=CLOSE_TIMEOUT_S)
        self._file.close()

    def _run(self) -> None:
        while (lines := self._queue.get()) is not None:
            if self._reopens.is_set():
                self._reopens.clear()
                self._file.close()
            try:
                self._file.write(lines)
            except (OSError, ValueError):
                self._failed += lines.count(b"\n")
                self._file.close()
            self._done_bytes += len(lines)


def _open(target: bool | str, max_bytes: int) -> _Stdout | _File:
    if target is True:
        return _Stdout()
    path = str(target)
    try:
        return _File(path, maxBytes=max_bytes, backupCount=KEPT_FILES, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"observability.access_log: cannot open {path!r}: {error.strerror}"
        ) from error
