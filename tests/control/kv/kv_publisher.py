"""An engine's KV-event publisher, on real ZMQ sockets."""

import asyncio

import msgspec
import pytest


def batch(*events):
    return msgspec.msgpack.encode([1.0, list(events), 0])


def as_map(event):
    return {"type": "BlockStored", **msgspec.to_builtins(event)}


class Publisher:
    """An engine's publisher and its replay socket."""

    def __init__(self):
        zmq = pytest.importorskip("zmq", reason="headrace[kv-events] is missing")
        self.zmq = zmq
        context = pytest.importorskip("zmq.asyncio").Context.instance()
        self.pub, self.router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self.port = self.pub.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.kept = {}
        self.asked = []
        self.task = asyncio.ensure_future(self._replay())

    async def send(self, number, *events, lost=False):
        self.kept[number] = batch(*events)
        if not lost:
            await self.pub.send_multipart([b"kv-events", number.to_bytes(8, "big"), batch(*events)])

    async def _replay(self):
        while True:
            who, _, first = await self.router.recv_multipart()
            self.asked.append(int.from_bytes(first, "big"))
            for number, payload in sorted(self.kept.items()):
                if number >= self.asked[-1]:
                    head = [who, b"", b"kv-events", number.to_bytes(8, "big")]
                    await self.router.send_multipart([*head, payload])
            await self.router.send_multipart([who, b"", b"", b"\xff" * 8, b""])

    def close(self):
        self.task.cancel()
        self.pub.close(0)
        self.router.close(0)
