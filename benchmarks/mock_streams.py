"""What `headrace mock` costs, and whether it keeps the model's time.

    python benchmarks/mock_streams.py                 # 8 replicas x 64 streams, needs wrk
    python benchmarks/mock_streams.py --accuracy      # TTFT over sockets beside the model alone

CPU is that of the mock's process from /proc, per generated token; the load generator (wrk) runs
beside it and is not in the figure.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import aiohttp

from headrace.mock.asks import chat_ask
from headrace.mock.block_hashes import block_hashes
from headrace.mock.engine_model import FIRST_TOKEN, NEVER_NS
from headrace.mock.presets import PRESETS, engine_of

FIRST_PORT = 21500
POST = """
wrk.headers["Content-Type"] = "application/json"
local count, text = 0, string.rep("hello there ", 30)
request = function()
  count = count + 1
  return wrk.format("POST", "/v1/chat/completions", nil, string.format(
    '{"model":"mock","stream":true,"max_tokens":400,' ..
    '"messages":[{"role":"user","content":"%s%d%f"}]}', text, count, math.random()))
end
"""


def start_mock(replicas: int, preset: str, speedup: float) -> subprocess.Popen:
    words = ["mock", "--replicas", str(replicas), "--port", str(FIRST_PORT), "--preset", preset]
    command = [sys.executable, "-m", "headrace", *words, "--speedup", str(speedup)]
    mock = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert mock.stderr is not None
    assert "ready" in mock.stderr.readline()
    return mock


def cpu_s(pid: int) -> tuple[float, float]:
    """User and system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / ticks, int(fields[12]) / ticks


def generated_tokens(replicas: int) -> float:
    total = 0.0
    for port in range(FIRST_PORT, FIRST_PORT + replicas):
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        total += float(re.search(r"generation_tokens_total\{.*\} (\S+)", page)[1])
    return total


def measure_cpu(replicas: int, streams: int, preset: str, seconds: float, speedup: float) -> None:
    if not shutil.which("wrk"):
        raise SystemExit("wrk is missing: install the package wrk")
    mock = start_mock(replicas, preset, speedup)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(POST)
        script.flush()
        load = ["wrk", "-t1", f"-c{streams}", f"-d{int(seconds) + 4}s", "-s", script.name]
        urls = [f"http://127.0.0.1:{FIRST_PORT + i}" for i in range(replicas)]
        clients = [
            subprocess.Popen([*load, "--timeout", "60s", url], stdout=subprocess.DEVNULL)
            for url in urls
        ]
        time.sleep(2.0)
        user, system = cpu_s(mock.pid)
        tokens, began = generated_tokens(replicas), time.monotonic()
        time.sleep(seconds)
        user, system = (b - a for a, b in zip((user, system), cpu_s(mock.pid), strict=True))
        tokens, took_s = generated_tokens(replicas) - tokens, time.monotonic() - began
        for client in clients:
            client.kill()
    mock.terminate()
    mock.wait()
    share = (user + system) / took_s
    print(
        f"{preset}, {replicas} x {streams} streams: {tokens / took_s:,.0f} tokens/s, "
        f"{100 * share:.0f} % of a core ({100 * user / took_s:.0f} user), "
        f"{1e6 * (user + system) / tokens:.1f} us a token ({1e6 * user / tokens:.1f} user)"
    )


async def over_sockets(bodies: list[tuple[float, bytes]]) -> list[tuple[float, float]]:
    """When each request was sent, and its time to the first event, in seconds."""
    found: list[tuple[float, float]] = []
    url = f"http://127.0.0.1:{FIRST_PORT}/v1/chat/completions"

    async def one(session: aiohttp.ClientSession, body: bytes) -> None:
        sent = time.monotonic()
        async with session.post(url, data=body, headers=json_type) as answer:
            await answer.content.readline()
            found.append((sent, time.monotonic() - sent))
            await answer.read()

    json_type = {"content-type": "application/json"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        began = time.monotonic()
        for at_s, body in bodies:
            await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
            group.create_task(one(session, body))
    return sorted(found)


def model_alone(bodies: list[tuple[float, bytes]], preset: str) -> list[float]:
    """The same requests at their planned times in the engine model: time to first token, s."""
    engine = engine_of(PRESETS[preset])
    events = []
    for request_id, (at_s, body) in enumerate(bodies):
        asked = chat_ask(json.loads(body))
        prompt = asked.prompts[0]
        hashes = block_hashes(prompt.data, 64, asked.cache_seed)
        now_ns = int(at_s * 1e9)
        events += engine.advance(now_ns)
        engine.submit(now_ns, request_id, prompt.tokens, asked.output_tokens, hashes)
    while (next_ns := engine.next_event_ns()) != NEVER_NS:
        events += engine.advance(next_ns)
    first = {request_id: at for at, kind, request_id, _ in events if kind == FIRST_TOKEN}
    return [first[i] / 1e9 - at_s for i, (at_s, _) in enumerate(bodies)]


def measure_accuracy(preset: str, rate: float, seconds: float) -> None:
    source = random.Random(0)
    at_s, bodies = 0.0, []
    while (at_s := at_s + source.expovariate(rate)) < seconds:
        said = f"{source.random()} " + "word " * source.randint(50, 1000)
        body = {
            "model": "mock",
            "stream": True,
            "max_tokens": source.randint(10, 150),
            "messages": [{"role": "user", "content": said}],
        }
        bodies.append((at_s, json.dumps(body).encode()))
    mock = start_mock(1, preset, 1.0)
    real = [ttft for _, ttft in asyncio.run(over_sockets(bodies))]
    mock.terminate()
    mock.wait()
    for name, found in (("sockets", real), ("model", model_alone(bodies, preset))):
        cuts = statistics.quantiles(found, n=100)
        print(
            f"{name:8} {len(found)} requests, TTFT p50 {1e3 * cuts[49]:.1f} ms, "
            f"p90 {1e3 * cuts[89]:.1f} ms, p99 {1e3 * cuts[98]:.1f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="llama3-8b-h100", choices=sorted(PRESETS))
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--streams", type=int, default=64, help="for each replica")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--speedup", type=float, default=1.0)
    parser.add_argument("--accuracy", action="store_true", help="compare TTFT with the model alone")
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second, --accuracy")
    args = parser.parse_args()
    if args.accuracy:
        measure_accuracy(args.preset, args.rate, args.seconds)
    else:
        measure_cpu(args.replicas, args.streams, args.preset, args.seconds, args.speedup)


if __name__ == "__main__":
    main()
