"""What clients see when a real engine dies, hangs or comes back: streams through a gateway.

    PYTHONPATH=src python benchmarks/engine_faults.py http://127.0.0.1:8100 http://127.0.0.1:8101 \\
        --model tiny --start 'COMMAND that serves port 8101 and stays in the foreground'

The first engine runs already and is left alone; the second is started by this script, which kills,
stops and restarts it. `--only hang-up` needs the first one alone.
"""

import argparse
import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import aiohttp
from rig.serving import Serving

HANG_UPS = 10
FAULTS = ("stop", "terminate", "kill engine core", "kill")
STOPPED_S = 20.0
SETTLE_S = 3.0


def gateway_over(urls):
    """A gateway with its defaults, and streams re-sent before their first token."""
    retry = {"before_first_token": True, "min_per_s": 100}
    return Serving({"replicas": urls, "retry": retry})


class Engine:
    """The engine that suffers."""

    def __init__(self, url, command):
        self.url, self.command = url, shlex.split(command)
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            self.signal(signal.SIGKILL)

    def core(self):
        """Process id of vLLM's engine core."""
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                is_own = os.getpgid(int(folder.name)) == self.process.pid
                if is_own and b"EngineCore" in (folder / "cmdline").read_bytes():
                    return int(folder.name)
        raise RuntimeError("no engine core found")

    def suffer(self, fault):
        if fault == "kill":
            self.signal(signal.SIGKILL)
        elif fault == "kill engine core":
            os.kill(self.core(), signal.SIGKILL)
        elif fault == "terminate":
            self.process.terminate()
        else:
            self.signal(signal.SIGSTOP)


class Load:
    """Streams at a steady rate; `ends` counts how they came out."""

    def __init__(self, session, url, model, rate):
        self.session, self.url, self.model, self.rate = session, url, model, rate
        self.ends = Counter()
        self.tasks = set()

    async def run(self):
        for number in range(10**9):
            task = asyncio.ensure_future(self.stream(f"request {number}"))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
            await asyncio.sleep(1 / self.rate)

    async def stream(self, text):
        has_begun, end = False, "cut"
        try:
            async with self.session.post(self.url, json=body(self.model, text, 300)) as answer:
                if answer.status != 200:
                    end = f"status {answer.status}"
                async for line in answer.content:
                    if b'"error"' in line:
                        end = "error event"
                    elif b'"abort"' in line:
                        end = "aborted by the engine"
                    elif line.startswith(b"data: [DONE]"):
                        end = "ok" if end == "cut" else end
                    elif line.startswith(b"data: "):
                        has_begun = True
        except (aiohttp.ClientError, OSError):
            pass
        self.ends[end if end == "ok" or has_begun else f"LOST: {end}"] += 1


def body(model, text, tokens):
    messages = [{"role": "user", "content": text}]
    options = {"stream": True, "max_tokens": tokens, "ignore_eos": True}
    return {"model": model, "messages": messages, **options}


async def states(session, gateway):
    async with session.get(f"{gateway.admin}/replicas") as answer:
        return {one["url"]: one["state"] for one in (await answer.json())["replicas"]}


async def until(condition, timeout_s=400.0):
    """Seconds until the condition holds."""
    begin = time.monotonic()
    while True:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            if await condition():
                return time.monotonic() - begin
        if time.monotonic() - begin > timeout_s:
            raise TimeoutError("it did not happen")
        await asyncio.sleep(0.02)


async def endure(session, gateway, engine, options, fault):
    """One fault under load, and the engine's return; prints a row."""

    async def serves():
        return (await states(session, gateway))[engine.url] == "ready"

    async def is_out():
        return (await states(session, gateway))[engine.url] not in ("ready", "degraded")

    async def answers():
        async with session.get(f"{engine.url}/health") as answer:
            return answer.status == 200

    load = Load(session, f"{gateway.data}/v1/chat/completions", options.model, options.rate)
    driver = asyncio.ensure_future(load.run())
    await asyncio.sleep(SETTLE_S)
    engine.suffer(fault)
    begin = time.monotonic()
    out_s = await until(is_out)
    if fault == "stop":
        await asyncio.sleep(max(0.0, STOPPED_S - (time.monotonic() - begin)))
        engine.signal(signal.SIGCONT)
    else:
        await asyncio.sleep(SETTLE_S)
        driver.cancel()  # an engine starts in half a minute, if it has the processor
        await asyncio.to_thread(engine.process.wait)
        engine.signal(signal.SIGKILL)
        engine.start()
        await until(answers)
        driver = asyncio.ensure_future(load.run())
    back_s = await until(serves)
    await asyncio.sleep(SETTLE_S)
    driver.cancel()
    if load.tasks:
        await asyncio.wait(load.tasks, timeout=60)
    lost = sum(count for end, count in load.ends.items() if end.startswith("LOST"))
    print(f"| {fault} | {out_s:.2f} | {back_s:.2f} | {lost} | {dict(load.ends)} |", flush=True)


async def hang_up(session, engine_url, through, model):
    """Milliseconds from closing a stream to the engine running nothing, as its page says."""

    async def running():
        async with session.get(f"{engine_url}/metrics") as answer:
            for line in (await answer.text()).splitlines():
                if line.startswith("vllm:num_requests_running{"):
                    return float(line.split()[-1])
        return 0.0

    took_ms = []
    for _ in range(HANG_UPS):
        async with aiohttp.ClientSession() as own:
            answer = await own.post(
                f"{through}/v1/chat/completions", json=body(model, "hang up", 1500)
            )
            for _ in range(30):
                await answer.content.readline()
            assert await running() == 1
            begin = time.monotonic()
            answer.close()
            while await running():
                pass
            took_ms.append((time.monotonic() - begin) * 1e3)
        await asyncio.sleep(0.2)
    took_ms.sort()
    return f"{took_ms[len(took_ms) // 2]:.0f} ({took_ms[0]:.0f} to {took_ms[-1]:.0f})"


async def main(options):
    first, *others = options.engines
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        if not options.only or "hang-up" in options.only:
            gateway = gateway_over([first])
            try:
                await until(lambda: all_ready(session, gateway))
                for name, through in (("direct", first), ("through headrace", gateway.data)):
                    took = await hang_up(session, first, through, options.model)
                    print(f"hang-up {name}: running is 0 after {took} ms", flush=True)
            finally:
                gateway.stop()
        faults = [fault for fault in FAULTS if not options.only or fault in options.only]
        if not others or not faults:
            return
        engine = Engine(others[0], options.start)
        gateway = gateway_over([first, engine.url])
        try:
            engine.start()
            await until(lambda: all_ready(session, gateway))
            print("| fault | s until out | s from back until ready | lost | ends |")
            print("|---|---|---|---|---|")
            for fault in faults:
                await endure(session, gateway, engine, options, fault)
        finally:
            engine.stop()
            gateway.stop()


async def all_ready(session, gateway):
    return set((await states(session, gateway)).values()) == {"ready"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engines", nargs="+", metavar="URL")
    parser.add_argument("--model", required=True)
    parser.add_argument("--start", default="", help="starts the second engine, in the foreground")
    parser.add_argument("--rate", type=float, default=4.0, help="streams a second")
    parser.add_argument("--only", action="append", help="hang-up, or one of the faults")
    asyncio.run(main(parser.parse_args()))
