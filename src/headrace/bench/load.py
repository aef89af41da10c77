"""Puts load on a server: open loop (requests are due at their times) or closed (C at once)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass

from headrace.bench.client import Client
from headrace.bench.prompts import chat_body
from headrace.bench.samples import Record
from headrace.bench.workload import Job, Request, Users

WORDED_AHEAD = 32


@dataclass(frozen=True)
class Target:
    """Where requests go and how they are worded."""

    url: str
    model: str | None = None
    api_key: str | None = None
    timeout_s: float = 600.0
    ignore_eos: bool = True

    def body(self, job: Job) -> bytes:
        return chat_body(job, self.model, ignore_eos=self.ignore_eos)


class Run:
    """One measurement: a clock that starts at zero, a record, and the CPU time the rig itself took.

    A turn of a session is not sent before the previous one has ended, as no user could; its latency
    then counts from that end, because the wait is the user's own.
    """

    def __init__(self, target: Target) -> None:
        self.record = Record()
        self.duration_s = 0.0
        self.cpu_s = 0.0
        self.target = target
        self._client: Client | None = None
        self._started = time.perf_counter()
        self._cpu_before_s = 0.0
        self._sessions: dict[str, asyncio.Future[None]] = {}

    @property
    def client(self) -> Client:
        assert self._client is not None, "the run is not open"
        return self._client

    def now_s(self) -> float:
        return time.perf_counter() - self._started

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Run]:
        """Start the clock, and stop it at the end."""
        target = self.target
        self._client = Client(
            target.url, self.record, self.now_s, api_key=target.api_key, timeout_s=target.timeout_s
        )
        self._cpu_before_s = time.process_time()
        self._started = time.perf_counter()
        try:
            yield self
        finally:
            self.duration_s = self.now_s()
            self.cpu_s = time.process_time() - self._cpu_before_s
            await self._client.close()

    async def open_loop(self, requests: Iterable[Request]) -> None:
        """Send each request when it is due, then wait for all answers."""
        async with asyncio.TaskGroup() as tasks:
            async for request, body in self._worded(requests):
                if (ahead_s := request.at_s - self.now_s()) > 0:
                    await asyncio.sleep(ahead_s)
                tasks.create_task(self._send(body, request.job, request.at_s))
                self._forget_done_sessions()

    async def _worded(self, requests: Iterable[Request]) -> AsyncIterator[tuple[Request, bytes]]:
        """Requests with their bodies, made while nothing is due: those that come together would
        else wait for each other's."""
        source, ready = iter(requests), deque[tuple[Request, bytes]]()
        while True:
            while len(ready) < WORDED_AHEAD and not (ready and ready[0][0].at_s <= self.now_s()):
                if (request := next(source, None)) is None:
                    break
                ready.append((request, self.target.body(request.job)))
                await asyncio.sleep(0)  # streams are read in between
            if not ready:
                return
            yield ready.popleft()

    async def closed_loop(self, jobs: Iterator[Job], concurrency: int, until_s: float) -> None:
        """Keep `concurrency` requests under way until the time is up or the jobs are."""

        async def user() -> None:
            for job in jobs:  # shared: each user takes the next
                if self.now_s() >= until_s:
                    return
                await self._send(self.target.body(job), job, None)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(concurrency):
                tasks.create_task(user())

    async def users(self, users: Users, until_s: float) -> None:
        """Let users talk: each sends when it has thought, until the time is up or all is said."""

        async def talk(user: int, request: Request | None) -> None:
            while request is not None and request.at_s < until_s:
                body = self.target.body(request.job)
                await asyncio.sleep(max(0.0, request.at_s - self.now_s()))
                await self._send(body, request.job, request.at_s)
                request = users.after(user, self.now_s())

        async with asyncio.TaskGroup() as tasks:
            for user, request in users.start():
                tasks.create_task(talk(user, request))

    async def _send(self, body: bytes, job: Job, due_s: float | None) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if job.session is not None:
            previous = self._sessions.get(job.session)
            self._sessions[job.session] = ended
            if previous is not None and not previous.done():
                await previous
                due_s = max(due_s or 0.0, self.now_s())
        try:
            due_s = self.now_s() if due_s is None else due_s
            await self.client.send(
                body, due_s=due_s, prompt_tokens=job.prompt_tokens, session=job.session
            )
        finally:
            ended.set_result(None)

    def _forget_done_sessions(self) -> None:
        if len(self._sessions) > 10_000:
            self._sessions = {k: v for k, v in self._sessions.items() if not v.done()}


def limited(requests: Iterable[Request], until_s: float, number: int | None) -> Iterator[Request]:
    """The requests due before a time, at most a number of them."""
    for index, request in enumerate(requests):
        if request.at_s >= until_s or index == number:
            return
        yield request
