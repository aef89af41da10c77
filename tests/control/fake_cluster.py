"""Fake replicas as pods of one workload, a fake API server, and gateways that see them."""

from __future__ import annotations

import contextlib
import time
from urllib.parse import urlsplit

import pytest
from fake_api import FakeApi, endpoint_slice, pod
from fake_plane import play, until

from headrace.control.autoscale import actuator
from headrace.control.discovery import kubernetes

client = pytest.importorskip("kubernetes_asyncio.client", reason="headrace[kubernetes] is missing")

LABELS = {"app": "vllm"}
DEPLOYMENT, STATEFULSET = "deployment/vllm", "statefulset/vllm"
SCALES = {DEPLOYMENT: "deployments/vllm", STATEFULSET: "statefulsets/vllm"}


class Cluster:
    """Pods a-0, a-1 … of the workload; `put` adds one."""

    def __init__(self, fake):
        self.fake = fake

    def put(self, name, url, *, labels=LABELS, **conditions):
        conditions = {"ready": True, **conditions}
        self.fake.put("pods", pod(name, "127.0.0.1", labels=labels, ready=conditions["ready"]))
        port = urlsplit(url).port
        part = endpoint_slice(f"s-{name}", [("127.0.0.1", name, conditions)], labels=LABELS)
        self.fake.put("endpointslices", {**part, "ports": [{"name": "http", "port": port}]})

    def terminate(self, name):
        entry = self.fake.objects["pods"][name]
        meta = {**entry["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.fake.put("pods", {**entry, "metadata": meta})
        part = self.fake.objects["endpointslices"][f"s-{name}"]
        (endpoint,) = part["endpoints"]
        gone = {"ready": False, "serving": True, "terminating": True}
        self.fake.put("endpointslices", {**part, "endpoints": [{**endpoint, "conditions": gone}]})

    def delete(self, name):
        self.fake.delete("endpointslices", f"s-{name}")
        self.fake.delete("pods", name)

    @property
    def marked(self):
        """The pods with any annotation."""
        return sorted(n for n in self.fake.objects["pods"] if self.fake.annotations(n))

    @property
    def scaled(self):
        """The counts that were ordered."""
        return [body["replicas"] for what, body in self.fake.patches if "/vllm" in what]

    def tree(self, workload=DEPLOYMENT, **more):
        entry = {"model": "m", "workload": workload, **more}
        return {
            "discovery": {"kubernetes": {"enabled": True, "namespace": "ns", "selector": LABELS}},
            "autoscale": {"down_window_s": 0, "models": [entry]},
        }


class Hand:
    """A gateway's actuator, moved by hand; its clock too."""

    def __init__(self, up):
        self.up, self.act, self.lead = up, up.control.actuator, up.control.actuator.leadership
        self.shift_s = 0.0
        self.lead.clock_s = lambda: time.monotonic() + self.shift_s

    async def later(self, seconds):
        """Let time pass while it goes on leading."""
        while seconds > 0:
            self.shift_s += min(seconds, 5)
            seconds -= 5
            await self.lead.renew()

    async def step(self, desired, workload=DEPLOYMENT):
        await self.act.step(workload, desired)

    def member(self, name):
        return next((m for m in self.members if m.pod == ("ns", name)), None)

    def state(self, name):
        member = self.member(name)
        return member and member.state

    def running(self, name):
        """What the engine in a pod says; -1: unknown."""
        return self.up.control.segment.row(self.member(name).slot)["running"]

    async def ready(self, count):
        """Wait until it knows who leads, and `count` replicas and their gauges."""
        await until(lambda: self.lead.holder and self.up.segment.serving == count)
        await until(lambda: all(self.running(m.pod[1]) == 0 for m in self.members))

    @property
    def members(self):
        return self.up.control.registry.members.values()


@contextlib.asynccontextmanager
async def running(replicas):
    """A cluster with these replicas in its pods; every gateway of the test talks to it."""
    async with contextlib.AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(actuator, "TURN_S", 3600.0)  # moved by hand
        fake = FakeApi()
        await fake.start()
        stack.push_async_callback(fake.stop)
        stack.callback(fake.drop)

        async def connect():
            return client.ApiClient(client.Configuration(host=fake.url))

        patch.setattr(kubernetes, "connect", connect)
        cluster = Cluster(fake)
        for number, one in enumerate(replicas):
            cluster.put(f"a-{number}", one.url)
        for scale in SCALES.values():
            fake.set_scale(scale, len(replicas))
        yield cluster


def acting(scenario, count=3, gateways=1, **more):
    """Run `scenario(cluster, replicas, *hands)`; the first of the gateways leads."""

    async def run(replica, plane):
        replicas = [await replica() for _ in range(count)]
        async with running(replicas) as cluster:
            hands = []
            for _ in range(gateways):
                hands.append(Hand(await plane(cluster.tree(**more))))
                await hands[-1].ready(count)
            await scenario(cluster, replicas, *hands)
            for hand in hands:
                await hand.up.control.close()

    play(run)
