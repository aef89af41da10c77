"""Members follow the merged list: here, the drains that stand in it."""

import json

import aiohttp
from fake_plane import until
from msgspec.structs import replace

from headrace.control import membership


async def post(made, path):
    async with aiohttp.ClientSession() as session, session.post(made.admin + path) as answer:
        return await answer.json()


def test_a_drain_in_the_list_lasts_as_long_as_it_stands_there(run, tmp_path):
    path = tmp_path / "replicas.json"

    async def scenario(replica, plane):
        one, other = await replica(), await replica()

        def write(**more):
            path.write_text(json.dumps([{"url": one.url}, {"url": other.url, **more}]))

        write(drain="maintenance")
        made = await plane({"discovery": {"file": {"path": str(path)}}})
        await until(lambda: made.state(one) == "ready" and made.state(other) == "drained")
        assert made.member(other).reason == "maintenance"
        write()
        await until(lambda: made.state(other) == "ready")
        write(drain="again")
        await until(lambda: made.state(other) == "drained")

    run(scenario)


def test_the_admin_port_and_the_list_each_end_their_own_drain(run):
    async def scenario(replica, plane):
        one = await replica()
        made = await plane({"replicas": [one.url]})
        await until(lambda: made.state(one) == "ready")
        path = f"/replicas/{made.member(one).id}"

        def write(drain):
            config = made.member(one).config
            made.control.sources.wanted.set_list("config", [replace(config, drain=drain)])
            membership.apply(made.control)

        write("scaled down")
        await until(lambda: made.state(one) == "drained")
        assert (await post(made, path + "/undrain"))["reason"] == "scaled down"
        assert made.state(one) == "drained"
        await post(made, path + "/drain")
        write(None)
        assert made.state(one) == "drained"
        assert (await post(made, path + "/undrain"))["state"] == "warming"
        await until(lambda: made.state(one) == "ready")

    run(scenario)
