"""The load history on disk: SQLite, one row a model and bin, bounded, moved aside if corrupt."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from pathlib import Path

from headrace.control.autoscale.scaler import KEPT_BINS
from headrace.errors import ConfigError

log = logging.getLogger("headrace.autoscale")

SCHEMA = """
CREATE TABLE IF NOT EXISTS load (
    model TEXT NOT NULL, bin INTEGER NOT NULL, mean REAL NOT NULL, PRIMARY KEY (model, bin)
) WITHOUT ROWID
"""
MAX_MODELS = 256


class Store:
    """Bins of five minutes by model; `path` None keeps them in memory only.

    Raises ConfigError for a path that cannot be used. What fails later is logged; scaling goes on.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.moved_to: str | None = None
        try:
            self.db = self._open()
        except (OSError, sqlite3.OperationalError) as error:  # no rights, a folder, locked …
            raise ConfigError(f"autoscale.history_path: cannot use {path}: {error}") from error
        except sqlite3.DatabaseError as error:
            self.moved_to = f"{path}.corrupt-{int(time.time())}"
            log.error("load history %s: %s; moved to %s", path, error, self.moved_to)
            os.replace(str(path), self.moved_to)
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(f"{path}{suffix}")
            self.db = self._open()

    def _open(self) -> sqlite3.Connection:
        if self.path is not None:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path or ":memory:", timeout=5.0, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(SCHEMA)
            if db.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("quick_check failed")
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def load(self, model: str) -> dict[int, float]:
        """The bins of a model, by number."""
        try:
            rows = self.db.execute("SELECT bin, mean FROM load WHERE model = ?", (model,))
            return {int(b): float(mean) for b, mean in rows}
        except sqlite3.Error as error:
            log.error("load history %s: not read: %s", self.path, error)
            return {}

    def add(self, model: str, bins: dict[int, float]) -> None:
        """Write bins (a later value of one wins); drop what is older than the profile looks."""
        if not bins:
            return
        try:
            self._write(model, bins)
        except sqlite3.Error as error:
            log.error("load history %s: not written: %s", self.path, error)

    def _write(self, model: str, bins: dict[int, float]) -> None:
        with self.db:
            self.db.executemany(
                "INSERT INTO load VALUES (?, ?, ?)"
                " ON CONFLICT (model, bin) DO UPDATE SET mean = excluded.mean",
                [(model, b, mean) for b, mean in bins.items()],
            )
            self.db.execute(
                "DELETE FROM load WHERE model = ? AND bin < ?", (model, max(bins) - KEPT_BINS)
            )
            self._drop_old_models()

    def _drop_old_models(self) -> None:
        """Keep the models seen last, so that names that come and go cannot fill the disk."""
        self.db.execute(
            "DELETE FROM load WHERE model NOT IN"
            " (SELECT model FROM load GROUP BY model ORDER BY max(bin) DESC LIMIT ?)",
            (MAX_MODELS,),
        )

    def close(self) -> None:
        """Close the file."""
        self.db.close()
