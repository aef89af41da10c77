"""`headrace top`: what it draws, and what it says when it cannot."""

import argparse
import asyncio
import io
import json

import pytest
from aiohttp import ClientResponseError
from gateway_loop import play
from rich.console import Console

from headrace import top
from headrace.cli import main

EVIL = "[red]m[/red]\x1b[2J"


def parsed(*words):
    parser = argparse.ArgumentParser()
    top.add_arguments(parser)
    return parser.parse_args(words)


def drawn(document, width=120):
    console = Console(file=io.StringIO(), width=width)
    console.print(top.picture(document))
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ftp://x"], 2, "not an http URL"),
        (["--interval", "0"], 2, "--interval: wanted > 0"),
        (["http://127.0.0.1:9"], 1, "127.0.0.1:9"),
    ],
)
def test_mistakes_are_named(words, code, said, capsys):
    assert main(["top", *words]) == code
    assert said in capsys.readouterr().err


def test_a_gateway_is_drawn_and_asked_for_its_key(capsys):
    async def scenario(gateway, engines):
        await gateway.chat(model=EVIL)
        with pytest.raises(ClientResponseError, match="401"):
            await top.watch(parsed(gateway.admin, "--once"))
        assert await top.watch(parsed(gateway.admin, "--json", "--api-key", "k")) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["command"] == "top"
        text = drawn(document)
        assert engines[0].url.removeprefix("http://") in text
        assert "TTFT p95" in text and "ready" in text

    play(scenario, {"auth": {"admin_api_key": "k"}}, models=(EVIL,))


def test_names_are_shown_as_text():
    replica = {
        **{"id": EVIL, "state": "ready", "reason": EVIL, "inflight": 2, "max_concurrency": 4},
        **{"waiting": None, "kv_usage": 0.5, "speed": 0.5, "hit_ratio": None, "gpu_util": None},
    }
    change = {"time": 0.0, "replica": EVIL, "from": "a", "to": "b", "reason": EVIL}
    text = drawn(
        {
            **{"version": "1", "policy": "random", "serving": 1, "rate": 0.0, "numbers": []},
            **{"replicas": [replica], "changes": [change]},
        },
        width=160,
    )
    assert "[red]m[/red]" in text and "\x1b" not in text
    assert "× 0.50" in text and "██░░░" in text


def test_it_ends_with_the_gateway():
    async def scenario(gateway, engines):
        watching = asyncio.ensure_future(top.watch(parsed(gateway.admin, "--interval", "0.05")))
        await asyncio.sleep(0.2)
        await gateway.control._runner.cleanup()
        with pytest.raises(OSError):
            await watching

    play(scenario)
