"""Two gateways and an engine that tells of its cache: what one sent, the other one knows."""

import asyncio
import itertools
import json
import re

import aiohttp
import pytest
from chat_models import FakeEngine, byte_level, chatml
from fake_plane import FakeReplica
from gateway_process import Command, free_port, get
from kv_publisher import Publisher, as_map

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CONFIG = """
replicas: [{{url: "{url}", kv_events_port: {port}, kv_replay_port: {replay_port}}}]
control: {{kv_tokenizers: [{{model: m, path: "{path}"}}]}}
server: {{drain_settle_s: 0}}
health: {{interval_s: 0.2, success_threshold: 1, slow_start_s: 0}}
"""
CHAT = {"role": "user", "content": "the river flows under bridges and over them. " * 40}
OTHER = {"role": "user", "content": "No. " + CHAT["content"]}
DEBUG = {"x-headrace-debug": "1"}


class Gateway:
    """`headrace serve`, and how much of a chat it takes to be cached."""

    def __init__(self, config):
        self.port, self.admin = free_port(), free_port()
        places = ("--host", "127.0.0.1", "--port", str(self.port), "--admin-port", str(self.admin))
        self.command = Command("serve", "--config", str(config), "--processes", "1", *places)

    async def known_blocks(self):
        page = await asyncio.to_thread(get, f"http://127.0.0.1:{self.admin}/replicas")
        return json.loads(page)["replicas"][0]["kv_events"].get("known_blocks", 0)

    async def matched_tokens(self, message):
        body = {"model": "m", "messages": [message]}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=body, headers=DEBUG) as answer,
        ):
            assert answer.status == 200, await answer.text()
            decision = answer.headers["x-headrace-decision"]
        return int(re.search(r"matched_tokens=(\d+)", decision)[1])


def test_what_one_gateway_sent_the_other_one_knows_until_it_is_dropped(tmp_path):
    async def run():
        publisher, replica = Publisher(), await FakeReplica().start()
        engine = FakeEngine(byte_level(tmp_path / "tokenizer.json"), chatml, block_tokens=16)
        replica.tokenize = engine.tokenize
        ports = {"port": publisher.port, "replay_port": publisher.replay_port}
        config = tmp_path / "headrace.yaml"
        config.write_text(CONFIG.format(url=replica.url, path=tmp_path, **ports))
        gateways = [Gateway(config), Gateway(config)]
        try:
            for gateway in gateways:
                await asyncio.to_thread(gateway.command.wait_line, b"headrace ready")
            await tell(publisher, engine, *gateways)
        finally:
            for gateway in gateways:
                await asyncio.to_thread(gateway.command.stop)
            await replica.stop()
            publisher.close()

    async def tell(publisher, engine, first, second):
        assert await second.matched_tokens(OTHER) == 0
        assert await first.matched_tokens(CHAT) == 0
        event, numbers = engine.store(chatml([CHAT])), itertools.count()

        async def tell_on(*events):
            await publisher.send(next(numbers), *events)
            await asyncio.sleep(0.05)

        await tell_on(as_map(event))
        while await second.known_blocks() == 0:  # what came before it listened is replayed
            await tell_on()
        assert await second.matched_tokens(CHAT) > 100
        removed = {"type": "BlockRemoved", "block_hashes": event.block_hashes}
        await tell_on(removed)
        while await second.known_blocks() > 0:
            await asyncio.sleep(0.05)
        assert await second.matched_tokens(CHAT) == 0

    asyncio.run(run())
