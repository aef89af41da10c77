"""A model that may have no replica is known by the configuration alone."""

import json

import aiohttp
from fake_plane import play, until

from headrace.snapshot import decode

TREE = {
    "autoscale": {"models": [{"model": "big", "min_replicas": 0}, {"model": "m"}]},
}


def published(up):
    return {model.name: model for model in decode(up.segment.blob()[1]).models}


def test_a_model_on_demand_is_published_without_replicas_and_planned_for():
    async def scenario(replica, plane):
        one = await replica()
        up = await plane({**TREE, "replicas": [{"url": one.url}]})
        await until(lambda: up.state(one) == "ready" and "m" in published(up))
        big = published(up)["big"]
        assert (big.slots, big.pairs, big.card["id"]) == ([], [], "big")
        assert big.id not in (0, published(up)["m"].id)
        up.control.autoscale.look(0.0)
        plans = up.control.autoscale.plans
        assert (plans["big"].desired, plans["m"].desired) == (0, 1)
        body = {"model": "big", "messages": [{"role": "user", "content": "hello"}]}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{up.admin}/explain", json=body) as answer,
        ):
            told = json.loads(await answer.text())
        assert (answer.status, told["choice"], told["reason"]) == (200, None, "no_replica")

    play(scenario)


def test_the_last_replica_of_a_model_on_demand_leaves_it_known():
    async def scenario(replica, plane):
        big, one = await replica(models=("big",)), await replica()
        up = await plane({**TREE, "replicas": [{"url": big.url}, {"url": one.url}]})
        await until(lambda: published(up).get("big") and published(up)["big"].slots)
        up.control.forget(up.member(big))
        assert published(up)["big"].slots == []
        up.control.forget(up.member(one))
        assert list(published(up)) == ["big"]

    play(scenario)
