"""Fake replicas and exporters on loopback, and a control plane in the test's own loop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket

from aiohttp import web

from headrace import config as configuration
from headrace.control.loop import Control
from headrace.core.segment import Segment


class FakeReplica:
    """An engine whose answers are attributes."""

    def __init__(self, models=("m",)):
        self.models = list(models)
        self.health_status = 200
        self.health_delay_s = 0.0
        self.metrics = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
        self.metrics_delay_s = 0.0
        self.chat_status = 200
        self.chat_delay_s = 0.0
        self.tokenize = None  # a coroutine function: body -> token ids, or None for a refusal
        self.seen = []
        self.lists = 0
        self.url = ""
        self._runner = None
        self._port = 0

    async def start(self):
        app = web.Application(middlewares=[self._note])
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/tokenize", self._tokenize)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        return self

    async def stop(self):
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _note(self, request, handler):
        self.seen.append(request.path)
        return await handler(request)

    async def _health(self, request):
        await asyncio.sleep(self.health_delay_s)
        return web.Response(status=self.health_status)

    async def _list_models(self, request):
        self.lists += 1  # as in vLLM, every answer has ids and times of its own
        return web.json_response(
            {
                "data": [
                    {"id": m, "created": self.lists, "permission": [{"id": f"p-{self.lists}"}]}
                    for m in self.models
                ]
            }
        )

    async def _metrics(self, request):
        await asyncio.sleep(self.metrics_delay_s)
        return web.Response(body=self.metrics, content_type="text/plain")

    async def _chat(self, request):
        await asyncio.sleep(self.chat_delay_s)
        return web.json_response({"choices": [{}]}, status=self.chat_status)

    async def _tokenize(self, request):
        ids = None if self.tokenize is None else await self.tokenize(await request.json())
        return web.json_response({"tokens": ids}, status=400 if ids is None else 200)


FAST = {
    "health": {"interval_s": 0.05, "timeout_s": 0.5, "success_threshold": 1, "slow_start_s": 0},
    "control": {"scrape_interval_s": 0.05, "scrape_timeout_s": 0.5, "stale_after_s": 1},
    "hardware": {"interval_s": 0.05},
    "routing": {"foreign_smoothing_s": 0, "prefix_table_bytes": 65536},
}


def merged(*trees):
    result = {}
    for tree in trees:
        for key, value in tree.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Plane:
    """A control plane under test, without processes."""

    def __init__(self, tree, args=None):
        port = free_port()
        server = {"server": {"admin_port": port, "processes": 1}}
        config = configuration.parse(merged(FAST, server, tree))
        self.admin = f"http://127.0.0.1:{port}"
        self.segment = Segment.create(1, config.routing.prefix_table_bytes)
        self.control = Control(config, self.segment, args or argparse.Namespace())

    def member(self, replica):
        return self.control.registry.members.get(replica.url.removeprefix("http://"))

    def state(self, replica):
        member = self.member(replica)
        return None if member is None else member.state


async def until(condition, timeout_s=5.0):
    """Wait for a condition; fails with its last value."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.01)
    assert condition()


def play(scenario):
    """Run `scenario(replica, plane)`, two async factories, and clean up after it."""

    async def main():
        async with contextlib.AsyncExitStack() as stack:

            async def replica(**knobs):
                one = FakeReplica(**knobs)
                await one.start()
                stack.push_async_callback(one.stop)
                return one

            async def plane(tree, args=None):
                one = Plane(tree, args)
                await one.control.start()
                stack.push_async_callback(one.control.close)
                return one

            await scenario(replica, plane)

    asyncio.run(main())
