"""A gateway over mock replicas, each a real process, with Poisson load; and what clients saw."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

SOURCE = Path(__file__).parents[2] / "src"
FAST = {
    "health": {
        "interval_s": 0.3,
        "timeout_s": 1.0,
        "success_threshold": 1,
        "slow_start_s": 1.0,
        "eject_s": 1.0,
        "probe_interval_s": 0.0,
    },
    "control": {"scrape_interval_s": 0.3, "scrape_timeout_s": 0.5, "stale_after_s": 2.0},
    "hardware": {"interval_s": 0.3},
    "server": {"drain_settle_s": 0.0, "processes": 1},
}


@dataclass
class Answer:
    """What became of one request."""

    sent_s: float
    first_s: float | None = None  # first content event
    replica: str = ""
    status: int = 0
    ending: str = "none"  # done, error event, cut, none
    code: str = ""
    model: str = "mock"

    @property
    def is_good(self) -> bool:
        return self.status == 200 and self.ending == "done"

    @property
    def ttft_s(self) -> float:
        assert self.first_s is not None
        return self.first_s - self.sent_s


@dataclass
class Load:
    """Requests at random times with a mean rate, until stopped."""

    answers: list[Answer] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def since(self, start_s: float, end_s: float = float("inf")) -> list[Answer]:
        return [a for a in self.answers if start_s <= a.sent_s < end_s]

    def p99_ttft_s(self, start_s: float, end_s: float = float("inf")) -> float:
        known = sorted(a.ttft_s for a in self.since(start_s, end_s) if a.first_s is not None)
        return known[min(len(known) - 1, int(len(known) * 0.99))]

    def share(self, replica: str, start_s: float, end_s: float = float("inf")) -> float:
        seen = [a.replica for a in self.since(start_s, end_s) if a.replica]
        return seen.count(replica) / max(1, len(seen))


def merge(*trees: dict) -> dict:
    result: dict = {}
    for tree in trees:
        for key, value in tree.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merge(result[key], value) if both else value
    return result


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that are free at the moment."""
    for _ in range(50):
        first = random.randrange(20000, 29000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError("no free ports")


class Process:
    """One `headrace` command; `ready` is a word of the line that says it is up."""

    def __init__(self, args: list[str], ready: str, folder: Path) -> None:
        self.log = folder / f"{args[0]}.log"
        env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", *args],
                stderr=log,
                stdout=log,
                env={**env, "PYTHONPATH": str(SOURCE)},
                start_new_session=True,
            )
        deadline = time.monotonic() + 20
        while ready not in self.log.read_text():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Scene:
    """Mock replicas and a gateway; use as an async context manager."""

    def __init__(self, folder: Path, count: int = 4, speedup: float = 4.0, **settings) -> None:
        port = free_ports(count + 3)
        self.ids = [f"127.0.0.1:{port + n}" for n in range(count)]
        self.dcgm = f"http://127.0.0.1:{port + count}"
        self.data = f"http://127.0.0.1:{port + count + 1}"
        self.admin = f"http://127.0.0.1:{port + count + 2}"
        own = {
            "server": {
                "host": "127.0.0.1",
                "port": port + count + 1,
                "admin_port": port + count + 2,
            },
            "replicas": [{"url": f"http://{one}"} for one in self.ids],
        }
        self.config = folder / "headrace.json"
        self.config.write_text(json.dumps(merge(FAST, own, settings)))
        self._mock_args = ["mock", "--replicas", str(count), "--port", str(port)]
        self._mock_args += ["--speedup", str(speedup), "--dcgm-port", str(port + count)]
        self._folder = folder

    async def __aenter__(self) -> Scene:
        self.mock = Process(self._mock_args, "headrace mock ready", self._folder)
        self.gateway = Process(
            ["serve", "--config", str(self.config)], "headrace ready", self._folder
        )
        connector = aiohttp.TCPConnector(limit=0)
        self.session = aiohttp.ClientSession(connector=connector)
        await self.until(lambda states: set(states) == {"ready"})
        await asyncio.sleep(0.1)  # for the processes to see the last of them
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        self.gateway.stop()
        self.mock.stop()

    async def do(self, action: str, replica: int | str = 0, **wishes: object) -> None:
        """A fault or repair at the mock."""
        body = {"replica": replica, "action": action, **wishes}
        async with self.session.post(f"{self.dcgm}/_control", json=body) as answer:
            assert answer.status == 200, await answer.text()

    async def entries(self) -> list[dict]:
        async with self.session.get(f"{self.admin}/replicas") as answer:
            return (await answer.json())["replicas"]

    async def states(self) -> list[str]:
        return [entry["state"] for entry in await self.entries()]

    async def until(self, condition, timeout_s: float = 10.0) -> float:
        """Wait for a condition on the states; returns how long it took."""
        start = time.monotonic()
        while not condition(states := await self.states()):
            log = self.gateway.log.read_text()[-3000:]
            assert time.monotonic() - start < timeout_s, (states, log)
            await asyncio.sleep(0.03)
        return time.monotonic() - start

    async def counter(self, name: str) -> float:
        """The sum of a metric's samples."""
        async with self.session.get(f"{self.admin}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"headrace_{name}"))

    @contextlib.asynccontextmanager
    async def load(self, rate: float, tokens: int = 40, words: int = 60):
        """Streams at Poisson times; waits for the last of them at the end."""
        load = Load()
        driver = asyncio.ensure_future(self._drive(load, rate, tokens, words))
        try:
            yield load
        finally:
            driver.cancel()
            if load.tasks:
                await asyncio.wait(load.tasks, timeout=20)

    async def _drive(self, load: Load, rate: float, tokens: int, words: int) -> None:
        chance = random.Random(1)
        at = time.monotonic()
        for number in range(10**9):
            at += chance.expovariate(rate)
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            prompt = f"request {number} " + f"w{chance.random()} " * words
            task = asyncio.ensure_future(self.ask(load, prompt, tokens))
            load.tasks.add(task)
            task.add_done_callback(load.tasks.discard)

    async def ask(self, load: Load, prompt: str, tokens: int, model: str = "mock") -> None:
        """One streamed request; its answer goes into the load."""
        answer = Answer(time.monotonic(), model=model)
        load.answers.append(answer)
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        url = f"{self.data}/v1/chat/completions"
        try:
            async with self.session.post(url, json=body) as got:
                answer.status = got.status
                answer.replica = got.headers.get("x-headrace-replica", "")
                answer.code = got.headers.get("x-headrace-error", "")
                answer.ending = "cut"
                async for line in got.content:
                    take_line(answer, line)
        except aiohttp.ClientError:
            answer.ending = "cut"


def take_line(answer: Answer, line: bytes) -> None:
    """Read one line of a stream."""
    if line.startswith(b"data: [DONE]"):
        answer.ending = "error event" if answer.ending == "error event" else "done"
    elif line.startswith(b'data: {"error"'):
        answer.ending = "error event"
    elif line.startswith(b"data: ") and answer.first_s is None:
        answer.first_s = time.monotonic()
