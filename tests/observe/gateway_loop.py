"""A whole gateway with its replicas in the loop of the test: real sockets, one process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket

import aiohttp
from aiohttp import web

from headrace import config as configuration
from headrace.control.loop import Control
from headrace.core.segment import Segment
from headrace.process import DataPlane

ENGINE_PAGE = """vllm:num_requests_running{model_name="m"} 2.0
vllm:num_requests_waiting{model_name="m"} 1.0
vllm:kv_cache_usage_perc{model_name="m"} 0.25
vllm:prefix_cache_queries_total{model_name="m"} %d
vllm:prefix_cache_hits_total{model_name="m"} %d
"""


def chunk(**delta):
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, **delta}]}


class Engine:
    """Answers chats with three tokens; keeps heads and bodies of what it was asked."""

    def __init__(self, models=("m",)):
        self.models = list(models)
        self.heads = []
        self.bodies = []
        self.scrapes = 0
        self.chat_with = None  # another way to answer
        self.url = ""

    async def start(self, stack, hosts=("127.0.0.1",), tls=None):
        """Listen at one port of all `hosts`; with a context for `tls` as https://localhost."""
        app = web.Application()
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/v1/models", self.list_models)
        app.router.add_post("/{path:.*}", self.chat)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        port = 0
        for host in hosts:
            await web.TCPSite(runner, host, port, ssl_context=tls).start()
            port = runner.addresses[0][1]
        self.url = f"https://localhost:{port}" if tls else f"http://{hosts[0]}:{port}"

    async def health(self, request):
        return web.Response()

    async def metrics(self, request):
        self.scrapes += 1
        return web.Response(text=ENGINE_PAGE % (100 * self.scrapes, 40 * self.scrapes))

    async def list_models(self, request):
        return web.json_response({"data": [{"id": m, "object": "model"} for m in self.models]})

    async def chat(self, request):
        body = await request.json()
        self.heads.append(request.headers.copy())
        self.bodies.append(body)
        if self.chat_with is not None:
            return await self.chat_with(request)
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"content": "a b c"}, "finish_reason": "stop"}
            return web.json_response({"choices": [choice], "usage": usage})
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        events = [chunk(delta={"content": c}, finish_reason=None) for c in "abc"]
        events.append(chunk(delta={}, finish_reason="stop"))
        if body.get("stream_options", {}).get("include_usage"):
            events.append({"object": "chat.completion.chunk", "choices": [], "usage": usage})
        for event in events:
            await answer.write(f"data: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(0.002)
        await answer.write(b"data: [DONE]\n\n")
        return answer


class Gateway:
    """Control and data plane; `url` is the data port, `admin` the other one."""

    def __init__(self, tree, engines):
        ports = [self._free_port() for _ in range(2)]
        base = {
            "replicas": [{"url": e.url} for e in engines],
            "server": {"host": "127.0.0.1", "port": ports[0], "admin_port": ports[1]},
            "health": {"interval_s": 0.05, "success_threshold": 1, "slow_start_s": 0},
            "control": {"scrape_interval_s": 0.05},
            "routing": {"prefix_table_bytes": 65536},
        }
        base["server"]["processes"] = 0
        for section, values in tree.items():
            base[section] = {**base.get(section, {}), **values}
        self.config = configuration.parse(base)
        self.url, self.admin = (f"http://127.0.0.1:{port}" for port in ports)
        self.segment = Segment.create(1, 65536)
        self.control = Control(self.config, self.segment, argparse.Namespace())
        self.client: aiohttp.ClientSession

    @staticmethod
    def _free_port():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    async def start(self, stack):
        await self.control.start()
        stack.push_async_callback(self.control.close)
        listener = socket.create_server(("127.0.0.1", self.config.server.port), backlog=64)
        listener.setblocking(False)
        plane = DataPlane(self.segment, 0, [listener])
        await plane.start()
        stack.push_async_callback(plane.drain, 1.0)
        stack.callback(plane.stop_accepting)
        self.client = await stack.enter_async_context(aiohttp.ClientSession())
        while self.segment.serving < len(self.config.replicas):
            await asyncio.sleep(0.01)

    async def chat(self, *, headers=None, **body):
        """One chat, read to its end: (status, headers, text)."""
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], **body}
        url = f"{self.url}/v1/chat/completions"
        async with self.client.post(url, json=body, headers=headers) as answer:
            return answer.status, answer.headers, await answer.text()


def play(scenario, tree=None, models=("m",), replicas=1):
    """Run `scenario(gateway, engines)` with everything around it."""

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            engines = [Engine(models) for _ in range(replicas)]
            for engine in engines:
                await engine.start(stack)
            gateway = Gateway(tree or {}, engines)
            async with asyncio.timeout(20):
                await gateway.start(stack)
                await scenario(gateway, engines)

    asyncio.run(main())
