"""What processes send up: access records, into the log, the traces and the dashboard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.observe import records
from headrace.observe.access_log import AccessLog
from headrace.observe.history import STEP_S

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.observe.tracing import Tracing

LOOK_S = 0.1  # between looks at the rings


class Upward:
    """Drains the rings of the processes."""

    def __init__(self, control: Control) -> None:
        self._control = control
        target = control.config.observability.access_log
        self.access_log = AccessLog(target) if target else None
        self.tracing = start_tracing(control.config.observability.otlp_endpoint)

    async def turn(self) -> None:
        """Move access records from the rings to the log and the dashboard."""
        self._drain()
        await asyncio.sleep(LOOK_S)

    def _drain(self) -> None:
        control = self._control
        policy = control.config.routing.policy
        models = {n: name for name, n in control.registry.model_ids.by_name.items()}
        replicas = {m.slot: m.id for m in control.registry.members.values()}
        for process in range(control.segment.processes):
            for data in records.drain(control.segment, process):
                entry = records.decode(data, models, replicas, policy)
                control.recent.append(entry)
                if self.access_log is not None:
                    self.access_log.add(entry)
                if self.tracing is not None:
                    self.tracing.add(entry)

    async def sample(self) -> None:
        """Keep the dashboard's history."""
        self._control.history.sample(self._control)
        await asyncio.sleep(STEP_S)

    def close(self) -> None:
        """Write what is left."""
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
