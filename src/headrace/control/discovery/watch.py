"""Tells when a file is another one, by its identity, size and time."""

from __future__ import annotations

import os


class FileWatch:
    """Watches one path by stat, which also sees the symbolic links that Kubernetes swaps."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._last: tuple[int, ...] | None = None

    def has_changed(self) -> bool:
        """True once for each new version; a file that is being written counts when it rests.

        The first version counts at once. A missing file is no version.
        """
        now = self._stat()
        is_resting = now == self._last or self._seen is None
        self._last = now
        if now is None or now == self._seen or not is_resting:
            return False
        self._seen = now
        return True

    def take(self) -> None:
        """Take the present version as seen."""
        self._seen = self._last = self._stat()

    def _stat(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
