"""What processes send up: access records, into the log, the traces and the dashboard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from headrace import __version__
from headrace.observe import records
from headrace.observe.access_log import AccessLog
from headrace.observe.dashboard import SHOWN
from headrace.observe.history import STEP_S

if TYPE_CHECKING:
    from headrace.config import Observability
    from headrace.control.loop import Control
    from headrace.core.logline import LogLines
    from headrace.observe.tracing import Tracing

LOOK_S = 0.1  # between looks at the rings
IDLE_LOOK_S = 0.5  # where the processes send only samples for the dashboard


class Upward:
    """Drains the rings of the processes."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.access_log: AccessLog | None = None
        self.tracing: Tracing | None = None
        self._endpoint: str | None = None
        self._lost_lines = 0  # by logs that are closed
        self._log_lines: LogLines
        self._named_in = -1  # the snapshot whose names it has
        self.configure(control.config.observability)

    def configure(self, settings: Observability) -> None:
        """Follow a configuration; raises ConfigError, and then nothing has changed.

        A log whose file stays the same is opened anew, so that other programs can rotate it.
        """
        target, endpoint = settings.access_log, settings.otlp_endpoint
        log, tracing = self.access_log, self.tracing
        if log is not None and log.target == target:
            log.reopen()
        else:
            log = AccessLog(target) if target else None
        if endpoint != self._endpoint:
            tracing = start_tracing(endpoint)
        if log is not self.access_log and self.access_log is not None:
            self.access_log.close()
            self._lost_lines += self.access_log.dropped
        if tracing is not self.tracing and self.tracing is not None:
            self.tracing.close(timeout_s=0.0)  # it goes on sending by itself
        self.access_log, self.tracing, self._endpoint = log, tracing, endpoint

    async def turn(self) -> None:
        """Move access records from the rings to the log and the dashboard."""
        self._drain()
        wants_all = self.access_log is not None or self.tracing is not None
        await asyncio.sleep(LOOK_S if wants_all else IDLE_LOOK_S)

    def _drain(self) -> None:
        segment = self._control.segment
        lines = self._lines()
        for process in range(segment.processes):
            while batch := lines.take(segment, process):
                self._pass_on(batch)

    def _lines(self) -> LogLines:
        """What makes lines, with the names of the snapshot in force."""
        control = self._control
        if self._named_in != control.segment.blob_generation:
            self._named_in = control.segment.blob_generation
            self._log_lines = records.log_lines(
                {number: name for name, number in control.registry.model_ids.by_name.items()},
                {m.slot: m.id for m in control.registry.members.values()},
                control.config.routing.policy,
            )
        return self._log_lines

    def _pass_on(self, batch: bytes) -> None:
        self._control.recent.extend(records.last_lines(batch, SHOWN))
        if self.access_log is not None:
            self.access_log.add(batch)
        if self.tracing is not None:
            for line in batch.splitlines():
                self.tracing.add(orjson.loads(line))

    def dropped(self) -> dict[str, int]:
        """Access records lost since the start, by where."""
        segment = self._control.segment
        return {
            "ring": sum(segment.process(i)["dropped"] for i in range(segment.processes)),
            "log": self._lost_lines + (self.access_log.dropped if self.access_log else 0),
        }

    async def sample(self) -> None:
        """Keep the dashboard's history."""
        self._control.history.sample(self._control)
        await asyncio.sleep(STEP_S)

    def close(self) -> None:
        """Write what is left, in the rings too: the processes have ended."""
        self._drain()
        if self.access_log is not None:
            self.access_log.close()
        if self.tracing is not None:
            self.tracing.close()


def start_tracing(endpoint: str | None) -> Tracing | None:
    """The exporter, if an endpoint is set; its packages are imported only then."""
    if endpoint is None:
        return None
    from headrace.observe.tracing import Tracing

    return Tracing(endpoint, __version__)
