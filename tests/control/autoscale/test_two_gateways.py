"""Two gateways, one workload: one acts, both drain, either goes on where the other ended."""

import asyncio
import contextlib
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from fake_cluster import DEPLOYMENT, STATEFULSET, Hand, acting, running
from fake_plane import until
from gateway_loop import Engine, Gateway

from headrace.control.autoscale import actuator
from headrace.control.autoscale.actuator import GONE_WITHIN_S, SETTLE_S, NotLeading
from headrace.control.autoscale.leadership import LEASE_S
from headrace.control.autoscale.wishes import STALE_S


async def told(hand):
    """What GET /autoscale says of who leads, and of what others want."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(hand.up.admin + "/autoscale") as answer,
    ):
        document = await answer.json()
        return document["leader"], document["holder"], document["others_desire"]


def plan(hand, desired):
    """Let its plan be this, from here on."""
    hand.up.control._planning.cancel()
    hand.up.control.autoscale.plans["m"] = SimpleNamespace(desired=desired)


async def drain(cluster, hand, *others):
    """One step down by the leader; the victim, when all gateways have drained it."""
    await hand.step(2)
    (victim,) = cluster.marked
    for one in (hand, *others):
        await until(lambda: one.state(victim) == "drained")  # noqa: B023
    return victim


async def outlive(leader, other):
    """The leader dies, and the Lease runs out."""
    await other.lead.renew()
    leader.shift_s += LEASE_S
    other.shift_s += LEASE_S
    await other.lead.renew()
    assert (leader.lead.leads, other.lead.leads) == (False, True)


def test_one_acts_and_the_admin_port_says_which():
    async def scenario(cluster, replicas, leader, other):
        assert await told(leader) == (True, leader.lead.identity, {})
        assert await told(other) == (False, leader.lead.identity, {})
        for desired in (2, 5):
            with pytest.raises(NotLeading):
                await other.step(desired)
        assert (cluster.marked, cluster.scaled) == ([], [])
        await leader.step(5)
        assert cluster.scaled == [5]

    acting(scenario, gateways=2)


def test_a_survivor_goes_on_with_the_same_victim():
    async def scenario(cluster, replicas, leader, other):
        victim = await drain(cluster, leader, other)
        await leader.step(2)
        await outlive(leader, other)
        await other.step(2)
        assert cluster.marked == [victim]
        for desired in (2, 3):
            with pytest.raises(NotLeading):
                await leader.step(desired)  # it would shrink, or spare the victim
        await other.later(SETTLE_S)
        await other.step(2)
        assert (cluster.marked, cluster.scaled) == ([victim], [2])

    acting(scenario, gateways=2)


def test_a_survivor_spares_the_victim_if_the_need_is_back():
    async def scenario(cluster, replicas, leader, other):
        victim = await drain(cluster, leader, other)
        await outlive(leader, other)
        await other.step(3)
        assert (cluster.marked, cluster.scaled) == ([], [])
        for one in (leader, other):
            await until(lambda: one.state(victim) == "ready")  # noqa: B023

    acting(scenario, gateways=2)


def test_a_survivor_knows_that_the_count_has_fallen():
    async def scenario(cluster, replicas, leader, other):
        victim = await drain(cluster, leader, other)
        await leader.step(2)
        await leader.later(SETTLE_S)
        await leader.step(2)
        assert cluster.scaled == [2]
        await outlive(leader, other)
        await other.step(1)
        await other.step(2)
        assert (cluster.marked, cluster.scaled) == ([victim], [2])
        cluster.terminate(victim)
        await until(lambda: other.state(victim) is None)
        await other.step(1)
        assert len(cluster.marked) == 2, "the next one"

    acting(scenario, gateways=2)


def test_a_survivor_lets_serve_what_kubernetes_did_not_delete():
    async def scenario(cluster, replicas, leader, other):
        victim = await drain(cluster, leader, other)
        await leader.step(2)
        await leader.later(SETTLE_S)
        await leader.step(2)
        await outlive(leader, other)
        await other.step(2)
        await other.later(GONE_WITHIN_S + 1)
        await other.step(2)
        assert cluster.marked == []
        await until(lambda: other.state(victim) == "ready")

    acting(scenario, gateways=2)


def test_a_stop_hands_over_at_once():
    async def scenario(cluster, replicas, leader, other):
        await leader.up.control.stop_acting()
        assert await told(leader) == (False, None, {})
        await other.lead.renew()
        assert await told(other) == (True, other.lead.identity, {})

    acting(scenario, gateways=2)


def test_a_request_that_waits_in_the_other_gateway_wakes_a_model_that_sleeps():
    async def scenario(cluster, replicas, leader, other):
        plan(leader, 0)
        plan(other, 1)
        await leader.act.look()
        assert cluster.scaled == []
        await other.act.elect()
        await leader.act.elect()
        await leader.act.look()
        assert cluster.scaled == [1]

    acting(scenario, count=0, gateways=2, min_replicas=0)


def test_nobody_shrinks_below_what_another_gateway_wants():
    async def scenario(cluster, replicas, leader, other):
        plan(leader, 2)
        plan(other, 3)
        await other.act.elect()
        await leader.act.elect()
        await leader.act.look()
        assert (cluster.marked, cluster.scaled) == ([], [])
        assert leader.act.document()["others_desire"] == {"m": 3}
        await leader.later(STALE_S)
        await leader.act.look()
        assert len(cluster.marked) == 1, "the other one has said nothing for a while"

    acting(scenario, gateways=2)


def test_left_alone_they_shrink_by_one_and_the_survivor_grows_again(monkeypatch):
    monkeypatch.setattr(actuator, "SETTLE_S", 0.2)

    async def scenario(cluster, replicas, *hands):
        monkeypatch.setattr(actuator, "TURN_S", 0.02)
        for hand in hands:
            await hand.up.control.stop_acting()
            hand.up.control.act()
        await until(lambda: cluster.scaled == [2])
        await until(lambda: any(hand.lead.leads for hand in hands))
        (leader,) = [hand for hand in hands if hand.lead.leads]
        (other,) = [hand for hand in hands if hand is not leader]
        (victim,) = cluster.marked
        cluster.delete(victim)
        for task in leader.up.control._acting:
            task.cancel()  # it hangs: nothing is given back
        cluster.fake.set_scale("deployments/vllm", 1)
        for _ in range(200):  # a second at a time, so that the survivor goes on renewing
            if cluster.scaled == [2, 2]:
                break
            leader.shift_s += 1
            other.shift_s += 1
            await asyncio.sleep(0.05)
        assert cluster.scaled == [2, 2] and not leader.lead.leads

    acting(scenario, gateways=2, workload=DEPLOYMENT, min_replicas=2, max_replicas=2)


class SlowEngine(Engine):
    """Its streams end when `end` is set; its page says how many run."""

    def __init__(self):
        super().__init__()
        self.running = 0
        self.lies = False  # its page says that nothing runs
        self.end = asyncio.Event()
        self.chat_with = self.stream

    async def metrics(self, request):
        running = 0 if self.lies else self.running
        page = f"vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n"
        return web.Response(text=page)

    async def stream(self, request):
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        self.running += 1
        await answer.prepare(request)
        await answer.write(b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n')
        await self.end.wait()
        ending = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
        await answer.write(ending + b"data: [DONE]\n\n")
        self.running -= 1
        return answer


async def gateways(stack, count=2, **more):
    """(cluster, three engines, hands) of whole gateways; the first one leads."""
    engines = [SlowEngine() for _ in range(3)]
    for engine in engines:
        await engine.start(stack)
    cluster = await stack.enter_async_context(running(engines))
    tree = {**cluster.tree(STATEFULSET), "routing": {"policy": "round_robin"}, **more}
    hands = []
    for _ in range(count):
        gateway = Gateway(tree, [])
        await gateway.start(stack)
        hands.append(Hand(gateway))
        await hands[-1].ready(3)
    return cluster, engines, hands


def test_no_page_makes_up_for_a_stream_of_its_own():
    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            more = {"server": {"drain_timeout_s": 0.1}}
            cluster, engines, (hand,) = await gateways(stack, 1, **more)
            engines[2].lies = True
            streams = [asyncio.ensure_future(hand.up.chat(stream=True)) for _ in engines]
            await until(lambda: [engine.running for engine in engines] == [1, 1, 1])
            await hand.step(2, STATEFULSET)
            await until(lambda: hand.state("a-2") == "drained")
            for _ in range(3):
                await hand.later(SETTLE_S)
                await hand.step(2, STATEFULSET)
            assert cluster.scaled == []
            for engine in engines:
                engine.end.set()
            await asyncio.gather(*streams)

    asyncio.run(scenario())


def test_a_stream_through_the_other_gateway_is_not_cut_and_holds_the_count_up():
    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            cluster, engines, (leader, other) = await gateways(stack)
            hands = leader, other
            streams = [asyncio.ensure_future(other.up.chat(stream=True)) for _ in engines]
            await until(lambda: [engine.running for engine in engines] == [1, 1, 1])

            await leader.step(2, STATEFULSET)
            await until(lambda: leader.state("a-2") == "drained")
            await until(lambda: other.state("a-2") == "draining")
            more = [asyncio.ensure_future(hand.up.chat(stream=True)) for hand in hands * 3]
            await until(lambda: sum(engine.running for engine in engines) == 9)
            assert engines[2].running == 1, "no new request goes there, by neither gateway"
            for _ in range(3):
                await leader.later(SETTLE_S)
                await leader.step(2, STATEFULSET)
            assert cluster.scaled == [] and not any(stream.done() for stream in streams)

            for engine in engines:
                engine.end.set()
            for status, _, text in await asyncio.gather(*streams, *more):
                assert (status, text[-14:]) == (200, "data: [DONE]\n\n")
            await until(lambda: other.state("a-2") == "drained")
            await until(lambda: leader.running("a-2") == 0)
            await leader.step(2, STATEFULSET)
            await leader.later(SETTLE_S)
            await leader.step(2, STATEFULSET)
            assert cluster.scaled == [2]

    asyncio.run(scenario())
