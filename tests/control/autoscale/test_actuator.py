"""The actuator against the fake API server: nothing shrinks before it is empty."""

import asyncio
import contextlib

import pytest
from fake_api import FakeApi, pod
from fake_plane import play, until

from headrace.control.autoscale import actuator
from headrace.control.autoscale.actuator import COST, Actuator

client = pytest.importorskip("kubernetes_asyncio.client", reason="headrace[kubernetes] is missing")

WORKLOAD = "deployment/vllm"
SCALE = "deployments/vllm"


def acting(scenario, kind=WORKLOAD, count=3):
    """Run `scenario(fake, actuator, plane, replicas)` with `count` replicas in pods a-0, a-1 …"""

    async def run(replica, plane):
        async with contextlib.AsyncExitStack() as stack:
            fake = FakeApi()
            await fake.start()
            stack.push_async_callback(fake.stop)
            api = client.ApiClient(client.Configuration(host=fake.url))
            stack.push_async_callback(api.close)
            replicas = [await replica() for _ in range(count)]
            entries = []
            for number, one in enumerate(replicas):
                name = f"a-{number}"
                fake.put("pods", pod(name, f"10.0.0.{number}"))
                labels = {"kubernetes.namespace": "ns", "kubernetes.pod": name}
                entries.append({"url": one.url, "labels": labels})
            fake.scales[SCALE] = fake.scales["statefulsets/vllm"] = count
            limits = {"model": "m", "workload": kind}
            tree = {
                "replicas": entries,
                "discovery": {"kubernetes": {"namespace": "ns"}},
                "autoscale": {"models": [limits]},
            }
            up = await plane(tree)
            await until(lambda: all(up.state(r) == "ready" for r in replicas))
            await scenario(fake, Actuator(up.control, api), up, replicas)

    play(run)


def pod_of(up, replica):
    return up.control.registry.members[replica].pod[1]


def test_more_is_one_patch_and_enough_is_none():
    async def scenario(fake, act, up, replicas):
        await act.step("m", WORKLOAD, 3, 0.0)
        assert fake.patches == []
        await act.step("m", WORKLOAD, 5, 0.0)
        assert fake.patches == [(SCALE, {"spec": {"replicas": 5}})]

    acting(scenario)


def test_the_count_falls_only_when_the_victim_is_empty():
    async def scenario(fake, act, up, replicas):
        await act.step("m", WORKLOAD, 2, 0.0)
        victim = up.control.registry.members[act.victims["m"].replica]
        assert fake.objects["pods"][victim.pod[1]]["metadata"]["annotations"] == {COST: "-1000"}
        assert victim.state in ("draining", "drained")
        assert fake.scales[SCALE] == 3
        await until(lambda: victim.state == "drained")
        engine = next(r for r in replicas if r.url == victim.url)
        engine.metrics = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
        await until(lambda: up.control.segment.row(victim.slot)["running"] == 1)
        await act.step("m", WORKLOAD, 2, 1.0)
        assert fake.scales[SCALE] == 3, "its engine still runs a request of another gateway"
        engine.metrics = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
        await until(lambda: up.control.segment.row(victim.slot)["running"] == 0)
        await act.step("m", WORKLOAD, 2, 2.0)
        assert fake.scales[SCALE] == 2
        await act.step("m", WORKLOAD, 1, 3.0)
        assert fake.scales[SCALE] == 2, "one at a time"

    acting(scenario)


def test_a_need_that_comes_back_spares_the_victim():
    async def scenario(fake, act, up, replicas):
        await act.step("m", WORKLOAD, 2, 0.0)
        victim = up.control.registry.members[act.victims["m"].replica]
        await act.step("m", WORKLOAD, 3, 1.0)
        assert act.victims == {}
        await until(lambda: victim.state == "ready")
        assert fake.objects["pods"][victim.pod[1]]["metadata"]["annotations"] == {}
        assert fake.scales[SCALE] == 3

    acting(scenario)


def test_a_statefulset_loses_its_highest_ordinal():
    async def scenario(fake, act, up, replicas):
        await act.step("m", "statefulset/vllm", 1, 0.0)
        assert pod_of(up, act.victims["m"].replica) == "a-2"

    acting(scenario, kind="statefulset/vllm")


def test_a_victim_that_was_not_deleted_serves_again(monkeypatch):
    monkeypatch.setattr(actuator, "GONE_WITHIN_S", 10.0)

    async def scenario(fake, act, up, replicas):
        await act.step("m", WORKLOAD, 2, 0.0)
        victim = up.control.registry.members[act.victims["m"].replica]
        await until(lambda: victim.state == "drained")
        await act.step("m", WORKLOAD, 2, 1.0)
        await act.step("m", WORKLOAD, 2, 5.0)
        assert act.victims["m"].shrunk_at_s == 1.0
        await act.step("m", WORKLOAD, 2, 12.0)
        assert act.victims == {}
        await until(lambda: victim.state == "ready")

    acting(scenario)


def test_a_refusal_names_verb_and_resource(caplog):
    async def scenario(fake, act, up, replicas):
        fake.refuse = (403, {"message": "no"})
        up.control.autoscale.look(0.0)
        task = asyncio.ensure_future(act.turn())
        await until(lambda: "may not get deployments/scale: 403" in caplog.text)
        task.cancel()
        assert act.victims == {}

    acting(scenario)
