"""A data plane in a thread of its own, and scripted replicas on raw sockets."""

import asyncio
import contextlib
import socket
import threading
import time

import msgspec
import pytest
import uvloop

from headrace.config import Config
from headrace.core.segment import Segment
from headrace.process import DataPlane
from headrace.snapshot import ModelInfo, ReplicaInfo, Snapshot, encode


class Replica:
    """Accepts connections; `script(connection, request)` answers each request, True keeps it.

    `tls`: the context of a replica that speaks https, as localhost.
    """

    def __init__(self, script, tls=None):
        self.script = script
        self.tls = tls
        self.requests = []
        self.connections = 0
        self.closed_at = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        start = "https://localhost" if tls else "http://127.0.0.1"
        self.url = f"{start}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(OSError))
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            stack.enter_context(connection)
            while (request := read_message(connection)) is not None:
                self.requests.append(request)
                if not self.script(connection, request):
                    return

    def wait_close(self, connection):
        """Until the gateway closes the connection; its time is kept."""
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                pass
        self.closed_at = time.monotonic()
        return False

    def stop(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the accept, too
        self.listener.close()


def read_message(connection):
    """One request with a content-length, or None at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


class Gateway:
    """One data-plane process's worth of gateway before some replicas."""

    def __init__(self, replicas, settings):
        self.config = msgspec.convert(settings, Config)
        self.segment = Segment.create(1, 1 << 20)
        self.publish(replicas)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.listener.setblocking(False)
        self.address = self.listener.getsockname()
        self.plane = DataPlane(self.segment, 0, [self.listener])
        self.loop = uvloop.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.run(self.plane.start())

    def publish(self, replicas, max_concurrency=256):
        """Put these replicas in the place of the ones before."""
        slots = list(range(len(replicas)))
        infos = [ReplicaInfo(i, 1, r.url.rpartition("/")[2], r.url) for i, r in enumerate(replicas)]
        model = ModelInfo(1, "m", 1, slots, [slot + 1 for slot in slots], {"id": "m"})
        for slot in slots:
            self.segment.write_row(
                slot, eligible=True, generation=1, max_concurrency=max_concurrency
            )
        self.segment.serving = len(slots)
        self.snapshot = Snapshot(infos, [model], self.config)
        self.publish_again()

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def publish_again(self):
        """What control does after a reload, among others."""
        self.segment.publish(encode(self.snapshot))

    def connect(self):
        client = socket.create_connection(self.address)
        client.settimeout(5)
        return client

    def ask(self, data, silence=0.5):
        """Send bytes; everything until the gateway closes or falls silent for so many seconds."""
        with self.connect() as client:
            client.sendall(data)
            return read_all(client, silence)

    def in_flight(self):
        process = self.segment.process(0)
        leases = sum(self.segment.requests(slot) for slot in range(4))
        return process["requests"], process["queued"], process["buffered_bytes"], leases

    def outcomes(self):
        """{(outcome, status): count} of the requests so far."""
        found = {}
        for key, count in self.segment.counters().items():
            if key >> 56 == 1:
                found[key >> 16 & 0xFFF, key & 0xFFFF] = count
        return found

    def close(self):
        async def stop():
            self.plane.stop_accepting()
            await self.plane.drain(0)

        self.run(stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)


def read_all(client, silence=0.5):
    client.settimeout(silence)
    data = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while piece := client.recv(65536):
            data += piece
    return data


def eventually(condition, timeout=3.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def wait_still(value, still_s=0.3):
    """The value once it has not changed for so long."""
    seen, since = value(), time.monotonic()
    while time.monotonic() - since < still_s:
        time.sleep(0.01)
        if (now := value()) != seen:
            seen, since = now, time.monotonic()
    return seen


@pytest.fixture
def start():
    """`start(script, …, **settings)`: a gateway before one replica for each script."""
    running = []

    def run(*scripts, **settings):
        replicas = [
            script if isinstance(script, Replica) else Replica(script) for script in scripts
        ]
        settings.setdefault("routing", {"policy": "round_robin"})
        gateway = Gateway(replicas, settings)
        running.extend([gateway.close, *(replica.stop for replica in replicas)])
        return gateway, *replicas

    yield run
    for stop in running:
        stop()
