"""A scenario of `headrace sim` as load on a real URL: the same requests, the same faults in time.

`headrace mock --scenario` makes the replicas; what befalls them is told to its `/_control`.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from headrace.bench.load import Run, limited
from headrace.bench.options import UsageError
from headrace.sim.scenario import Event, Scenario, load
from headrace.sim.traffic import requests_of, users_of

FILE_ONLY = ("concurrency", "speed", "find_capacity")  # a scenario has its own load


@dataclass(frozen=True)
class ScenarioPlan:
    """The load of a scenario; `control_url` is any port of the mock that outlives the faults."""

    scenario: Scenario
    seed: int
    control_url: str | None
    duration_s: float = math.inf

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> ScenarioPlan:
        """The file, with the options that stand beside it; raises UsageError, ScenarioError."""
        for name in FILE_ONLY:
            if getattr(args, name):
                raise UsageError(f"--{name.replace('_', '-')}: not with --scenario")
        scenario = load(args.scenario)
        if scenario.events and args.control is None:
            raise UsageError(
                f"scenario {scenario.name} breaks replicas: give --control URL of `headrace mock`"
            )
        wanted = {"requests": args.requests, "rate": args.rate, "dataset": args.dataset}
        changes = {key: value for key, value in wanted.items() if value is not None}
        traffic = msgspec.structs.replace(scenario.traffic, **changes)
        scenario = msgspec.structs.replace(scenario, traffic=traffic)
        return cls(scenario, args.seed, args.control, args.duration or math.inf)

    @property
    def warmup_requests(self) -> int:
        """The first so many requests are sent but not counted."""
        return int(self.scenario.warmup_ratio * self.scenario.traffic.requests)

    def describe(self) -> str:
        """The load in words."""
        return f"scenario {self.scenario.name}, {self.scenario.traffic.requests} requests"

    async def drive(self, run: Run) -> None:
        """Send the load and wait for its answers; RuntimeError if a fault could not be made."""
        async with self._breaking(run):
            if self.scenario.traffic.dataset == "chats":
                users = users_of(self.scenario.traffic, self.seed)
                await run.users(users, self.duration_s)
            else:
                requests = requests_of(self.scenario.traffic, self.seed)
                number = self.scenario.traffic.requests
                await run.open_loop(limited(requests, self.duration_s, number))

    def _breaking(self, run: Run) -> AbstractAsyncContextManager[None]:
        return Breaking(self.scenario.events, self.control_url, run)


class Breaking:
    """Makes the faults of a scenario at their times on the run's clock, while it is entered."""

    def __init__(self, events: list[Event], control_url: str | None, run: Run) -> None:
        self._events = sorted(events, key=lambda event: event.at_s)
        self._url = f"{(control_url or '').rstrip('/')}/_control"
        self._run = run
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if self._events:
            self._task = asyncio.create_task(self._make_all())

    async def __aexit__(self, *error: object) -> None:
        if self._task is None:
            return
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        elif error[0] is None:
            self._task.result()

    async def _make_all(self) -> None:
        async with aiohttp.ClientSession() as session:
            for event in self._events:
                await asyncio.sleep(max(0.0, event.at_s - self._run.now_s()))
                await self._make(session, order(event))

    async def _make(self, session: aiohttp.ClientSession, wishes: dict[str, Any]) -> None:
        try:
            async with session.post(self._url, json=wishes) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"{self._url}, {wishes}: {answer.status}")
        except aiohttp.ClientError as error:
            raise RuntimeError(f"{self._url}, {wishes}: {error!r}") from error


def order(event: Event) -> dict[str, Any]:
    """A scenario's event as the mock's control wants it."""
    wishes: dict[str, Any] = {"replica": event.replica, "action": event.action}
    if event.action == "slow":
        wishes["factor"] = event.factor
    elif event.action == "kill":
        wishes["what"] = "server"
    return wishes
