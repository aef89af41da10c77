"""Three mock replicas, the gateway, and a few requests through the official openai client.

python demo/run.py
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import openai
from rich.console import Console
from rich.table import Table

REPLICAS = 3
MODEL = "demo"
START_S = 20
STOP_S = 15
QUESTIONS_PER_TOPIC = 3
TOPICS = {
    "travel": "You plan train journeys through Europe, with few changes and long stops. ",
    "cooking": "You write recipes for two people and one pan, with what is in season. ",
    "law": "You explain contracts in plain words and never give legal advice. ",
}
PROMPT_REPEATS = 40  # long system prompts, so that a prefix hit shows


@dataclass(frozen=True)
class Answer:
    """What one streamed request has shown."""

    topic: str
    replica: str
    ttft_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports that are free on loopback."""
    for first in range(18000, 32000, count):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise SystemExit("demo: no free ports")


@contextlib.contextmanager
def command(*words: str, ready: str) -> Iterator[None]:
    """Run `headrace WORDS` from its ready line to the end of the block, then stop it."""
    process = subprocess.Popen([sys.executable, "-m", "headrace", *words], stderr=subprocess.PIPE)
    try:
        wait_for(ready, process)
        yield
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def wait_for(ready: str, process: subprocess.Popen[bytes]) -> None:
    """Read stderr up to the ready line; exit with what was said if there is none in time."""
    assert process.stderr is not None
    said = b""
    deadline = time.monotonic() + START_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            piece = process.stderr.read1()
            said += piece
            if ready.encode() in said:
                return
            if not piece:
                break
    raise SystemExit(f"demo: no '{ready}' line:\n{said.decode(errors='replace')}")


def wait_until_serving(client: openai.OpenAI) -> None:
    """Wait until the gateway has found the model on its replicas."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(openai.APIError):
            if client.models.list().data:
                return
        time.sleep(0.1)
    raise SystemExit(f"demo: no replica ready within {START_S} s")


def ask(client: openai.OpenAI, topic: str, question: str) -> Answer:
    """Stream one answer; the replica's name comes in a response header."""
    start = time.monotonic()
    response = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": TOPICS[topic] * PROMPT_REPEATS},
            {"role": "user", "content": question},
        ],
        max_tokens=32,
        stream=True,
        stream_options={"include_usage": True},
    )
    ttft_s, usage = 0.0, None
    for chunk in response.parse():
        if chunk.choices and not ttft_s:
            ttft_s = time.monotonic() - start
        usage = chunk.usage or usage
    if usage is None:
        raise SystemExit("demo: the stream ended without usage")
    details = usage.prompt_tokens_details
    return Answer(
        topic,
        response.headers.get("x-headrace-replica", "unknown"),
        ttft_s,
        usage.prompt_tokens,
        (details.cached_tokens or 0) if details else 0,
        usage.completion_tokens,
    )


def table(answers: list[Answer]) -> Table:
    """One row a request."""
    made = Table(title="headrace demo: streamed through the openai client")
    for name in ("#", "topic", "replica"):
        made.add_column(name, no_wrap=True)
    for name in ("TTFT", "prompt tokens", "prefix hit", "output tokens"):
        made.add_column(name, justify="right")
    for number, answer in enumerate(answers, 1):
        made.add_row(
            str(number),
            answer.topic,
            answer.replica,
            f"{answer.ttft_s * 1000:.0f} ms",
            str(answer.prompt_tokens),
            f"{answer.cached_tokens / answer.prompt_tokens:.0%}",
            str(answer.output_tokens),
        )
    return made


def main() -> int:
    """Start everything, ask, print the table, stop everything."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    first = free_ports(REPLICAS + 2)
    urls = [f"http://127.0.0.1:{first + number}" for number in range(REPLICAS)]
    port, admin_port = str(first + REPLICAS), str(first + REPLICAS + 1)
    mock = ("mock", "--replicas", str(REPLICAS), "--port", str(first), "--model", MODEL)
    serve = ("serve", "--replicas", *urls, "--host", "127.0.0.1", "--port", port)
    with contextlib.ExitStack() as running:
        running.enter_context(command(*mock, ready="headrace mock ready:"))
        running.enter_context(
            command(
                *serve,
                *("--admin-port", admin_port, "--health-check-interval-secs", "0.5"),
                *("--health-success-threshold", "1"),
                ready="headrace ready:",
            )
        )
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
        wait_until_serving(client)
        questions = [f"Question {number}?" for number in range(1, QUESTIONS_PER_TOPIC + 1)]
        answers = [ask(client, topic, question) for question in questions for topic in TOPICS]
    Console().print(table(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
