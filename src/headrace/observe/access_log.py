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

QUEUE_LINES = 20_000
MAX_FILE_BYTES = 100 << 20
KEPT_FILES = 5


class AccessLog:
    """A bounded queue before stdout or a size-rotated file; `dropped` counts what did not fit."""

    def __init__(self, target: bool | str, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.dropped = 0
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(QUEUE_LINES)
        self._handler: logging.Handler = (
            logging.StreamHandler(sys.stdout)
            if target is True
            else RotatingFileHandler(str(target), maxBytes=max_bytes, backupCount=KEPT_FILES)
        )
        self._thread = threading.Thread(target=self._write, name="access-log", daemon=True)
        self._thread.start()

    def add(self, entry: dict[str, Any]) -> None:
        """Queue one line; never blocks."""
        try:
            self._queue.put_nowait(entry)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what is queued, then close the file."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=1.0)
        self._thread.join(timeout=5.0)
        self._handler.close()

    def _write(self) -> None:
        while (entry := self._queue.get()) is not None:
            line = orjson.dumps(entry).decode()
            record = logging.LogRecord("access", logging.INFO, "", 0, line, None, None)
            self._handler.handle(record)
