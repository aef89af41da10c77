"""The access log: one JSON line a request, written by a thread so that a slow disk delays nobody.

No prompt text, no keys, no header but the request id. JSON escaping keeps every record on one line.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from logging.handlers import RotatingFileHandler
from typing import Any

import orjson

from headrace.errors import ConfigError

QUEUE_LINES = 20_000
MAX_FILE_BYTES = 100 << 20
KEPT_FILES = 5
BATCH_BYTES = 64 << 10
CLOSE_TIMEOUT_S = 5.0


class _Stdout(logging.StreamHandler):  # type: ignore[type-arg]
    def handleError(self, record: logging.LogRecord) -> None:
        raise  # called inside `except`: the writer counts what is lost


class _File(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        raise  # as above


class AccessLog:
    """A bounded queue before stdout or a size-rotated file.

    Raises ConfigError when the file cannot be opened.
    """

    def __init__(self, target: bool | str, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.target = target
        self._overflowed = 0  # written by the caller's thread
        self._failed = 0  # written by the log's own
        self._batch_bytes = min(BATCH_BYTES, max_bytes // 2)
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._handler = _open(target, max_bytes)
        self._reopens = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that did not fit into the queue or could not be written."""
        return self._overflowed + self._failed

    def add(self, entry: dict[str, Any]) -> None:
        """Queue one line; never blocks."""
        if self._queue.qsize() < QUEUE_LINES:
            self._queue.put(entry)
        else:
            self._overflowed += 1

    def reopen(self) -> None:
        """Open the file again before the next line: another program may have moved it away."""
        self._reopens.set()

    def close(self) -> None:
        """Write what is queued, then close the file."""
        self._queue.put(None)
        self._thread.join(timeout=CLOSE_TIMEOUT_S)
        self._close_file()

    def _close_file(self) -> None:
        """The next line opens it again; what cannot be written any more is given up."""
        if isinstance(self._handler, _File):
            with contextlib.suppress(OSError, ValueError):
                self._handler.close()

    def _run(self) -> None:
        is_open = True
        while is_open:
            lines, is_open = self._next_lines()
            if not lines:
                continue
            text = "\n".join(lines)
            record = logging.LogRecord("access", logging.INFO, "", 0, text, None, None)
            try:
                if self._reopens.is_set():
                    self._reopens.clear()
                    self._close_file()
                self._handler.handle(record)
            except (OSError, ValueError):
                self._failed += len(lines)
                self._close_file()

    def _next_lines(self) -> tuple[list[str], bool]:
        """Wait for a line and take what else is there; False with the last ones."""
        lines: list[str] = []
        size = 0
        while size < self._batch_bytes:
            try:
                entry = self._queue.get(block=not lines)
            except queue.Empty:
                break
            if entry is None:
                return lines, False
            lines.append(orjson.dumps(entry).decode())
            size += len(lines[-1])
        return lines, True


def _open(target: bool | str, max_bytes: int) -> _Stdout | _File:
    if target is True:
        return _Stdout(sys.stdout)
    path = str(target)
    try:
        return _File(path, maxBytes=max_bytes, backupCount=KEPT_FILES, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"observability.access_log: cannot open {path!r}: {error.strerror}"
        ) from error
