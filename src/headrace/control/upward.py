"""What processes send up: access records, into the log, the traces and the dashboard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.observe import records
from headrace.observe.access_log import AccessLog
from headrace.observe.history import STEP_S

if TYPE_CHECKING:
    from headrace.control.loop import Control

LOOK_S = 0.1  # between looks at the rings


class Upward:
    """Drains the rings of the processes."""

    def __init__(self, control: Control) -> None:
        self._control = control
        target = control.config.observability.access_log
        self.access_log = AccessLog(target) if target else None

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

    async def sample(self) -> None:
        """Keep the dashboard's history."""
        self._control.history.sample(self._control)
        await asyncio.sleep(STEP_S)

    def close(self) -> None:
        """Write what is left."""
        if self.access_log is not None:
            self.access_log.close()
