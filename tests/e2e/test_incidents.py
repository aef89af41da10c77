"""Scripted incidents against the real command: what clients notice, and what the gateway says."""

import asyncio
import statistics
import time
from pathlib import Path

import pytest
from aiohttp import web
from scene import Load, Scene

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
NOISE_S = 0.01  # of a machine that does other work
PAGE = Path(__file__).parents[1] / "fixtures" / "dcgm-4.4-healthy-8xh100.txt"


def play(folder, scenario, **settings):
    async def main():
        async with Scene(folder, **settings) as scene:
            await scenario(scene)

    asyncio.run(main())


def lost(answers):
    """The requests that were not answered well, as text for a message."""
    return [(a.status, a.ending, a.code, a.first_s is None) for a in answers if not a.is_good]


def test_a_crash_ends_begun_streams_with_an_error_event_and_loses_nothing_else(tmp_path):
    async def scenario(scene):
        async with scene.load(rate=60) as load:
            await asyncio.sleep(1.0)
            await scene.do("kill", what="server")
            assert await scene.until(lambda states: states[0] == "ejected") < 1.0
            out = time.monotonic()
            await asyncio.sleep(1.0)
            await scene.do("restart")
            await scene.until(lambda states: states[0] == "ready")
            await asyncio.sleep(0.5)
        assert len(load.answers) > 100
        broken = [a for a in load.answers if not a.is_good]
        assert all(a.first_s is not None and a.ending == "error event" for a in broken), lost(
            broken
        )
        assert {a.replica for a in broken} <= {scene.ids[0]}
        assert not lost(load.since(out))

    retry = {"before_first_token": True, "min_per_s": 100}
    play(tmp_path, scenario, retry=retry)


def test_without_the_option_those_without_a_token_get_a_clear_error(tmp_path):
    async def scenario(scene):
        async with scene.load(rate=60) as load:
            await asyncio.sleep(0.7)
            await scene.do("kill", what="engine")
            await scene.until(lambda states: states[0] in ("ejected", "drained", "draining"))
            await asyncio.sleep(0.5)
        for answer in load.answers:
            told = answer.ending == "error event" or answer.code or answer.status >= 500
            assert answer.is_good or told, lost(load.answers)

    play(tmp_path, scenario)


def test_a_frozen_engine_is_found_although_it_looks_healthy(tmp_path):
    async def scenario(scene):
        async with scene.load(rate=40) as load:
            await asyncio.sleep(0.7)
            await scene.do("freeze")
            await scene.until(lambda states: states[0] == "ejected", 15)
            out = time.monotonic()
            await asyncio.sleep(0.7)
            assert not [a for a in load.since(out + 0.1) if a.replica == scene.ids[0]]
            await scene.do("unfreeze")
            await scene.until(lambda states: states[0] in ("ready", "degraded"))
        assert not lost(load.since(out + 0.1))

    probing = {"probe_interval_s": 0.5, "probe_timeout_s": 0.5, "eject_s": 0.5}
    play(tmp_path, scenario, health=probing)


def test_xid_79_drains_the_replica_and_breaks_no_stream(tmp_path):
    async def scenario(scene):
        entry = {"url": f"http://{scene.ids[0]}", "dcgm_url": f"{scene.dcgm}/metrics"}
        async with scene.session.post(f"{scene.admin}/replicas", json=entry) as answer:
            assert answer.status == 201
        await asyncio.sleep(1.0)  # the page is read at least once, so that the Xid is an edge
        async with scene.load(rate=40, tokens=200) as load:
            await asyncio.sleep(0.7)
            await scene.do("xid", code=79, kill=False)
            await scene.until(lambda states: states[0] in ("draining", "drained"))
            out = time.monotonic()
            await asyncio.sleep(0.7)
        assert not lost(load.answers)
        assert not [a for a in load.since(out + 0.1) if a.replica == scene.ids[0]]
        reasons = [one["reason"] for one in await scene.entries()]
        assert any("Xid 79" in reason for reason in reasons), reasons

    play(tmp_path, scenario)


def test_an_exporter_that_is_gone_changes_nothing(tmp_path):
    async def scenario(scene):
        async def page(request):
            return web.FileResponse(PAGE)

        exporter = web.AppRunner(web.Application())
        exporter.app.router.add_get("/metrics", page)
        await exporter.setup()
        site = web.TCPSite(exporter, "127.0.0.1", 0)
        await site.start()
        host, port = exporter.addresses[0]
        entry = {"url": f"http://{scene.ids[0]}", "dcgm_url": f"http://{host}:{port}/metrics"}
        async with scene.session.post(f"{scene.admin}/replicas", json=entry) as answer:
            assert answer.status == 201
        while not await scene.counter("replica_gpu_temp_celsius"):
            await asyncio.sleep(0.02)
        async with scene.load(rate=60) as load:
            await asyncio.sleep(0.5)
            await exporter.cleanup()
            gone = time.monotonic()
            await asyncio.sleep(2.0)
            assert await scene.states() == ["ready"] * 4
        assert not lost(load.answers)
        assert load.share(scene.ids[0], gone + 1) > 0.1

    play(tmp_path, scenario)


def test_a_request_that_kills_its_engine_reaches_at_most_two_replicas(tmp_path):
    async def scenario(scene):
        await scene.do("poison", "all", text="poisonous")
        async with scene.load(rate=40) as load:
            await asyncio.sleep(0.5)
            poison = Load()
            await scene.ask(poison, "a poisonous prompt", 5)
            await scene.until(lambda states: states.count("ejected") == 2)
            out = time.monotonic()
            await asyncio.sleep(1.5)
            assert sorted(await scene.states()) == ["ejected", "ejected", "ready", "ready"]
        (answer,) = poison.answers
        assert (answer.status, answer.code) == (502, "upstream_error")
        assert not lost(load.since(out + 0.1))

    retry = {"before_first_token": True, "max_retries": 3, "min_per_s": 100}
    play(tmp_path, scenario, retry=retry)


def test_the_whole_fleet_goes_and_comes_back(tmp_path):
    async def scenario(scene):
        async with scene.load(rate=40) as load:
            await asyncio.sleep(0.5)
            await scene.do("kill", "all", what="server")
            await scene.until(lambda states: set(states) == {"ejected"})
            down = time.monotonic()
            await asyncio.sleep(0.7)
            refused = load.since(down + 0.1, time.monotonic() - 0.1)
            assert {(a.status, a.code) for a in refused} == {(503, "no_replica")}
            await scene.do("restart", "all")
            await scene.until(lambda states: set(states) == {"ready"})
            await asyncio.sleep(0.2)
            back = time.monotonic()
            await asyncio.sleep(0.7)
        assert not lost(load.since(back))

    play(tmp_path, scenario)


def test_a_replica_that_comes_back_as_another_model_gets_no_old_request(tmp_path):
    async def scenario(scene):
        async with scene.load(rate=40) as load:
            await scene.do("kill", what="server")
            await scene.until(lambda states: states[0] == "ejected")
            await scene.do("restart")
            await scene.do("model", names=["other"])
            await scene.until(lambda states: states[0] == "ready")
            while (await scene.entries())[0]["models"] != ["other"]:
                await asyncio.sleep(0.02)
            back = time.monotonic() + 0.1  # for the processes to hear of it
            await asyncio.sleep(1.0)
            await scene.ask(load, "hello", 5, model="other")
        old = [a for a in load.since(back) if a.model == "mock"]
        (other,) = [a for a in load.answers if a.model == "other"]
        assert (other.status, other.code, other.replica) == (200, "", scene.ids[0])
        assert scene.ids[0] not in {a.replica for a in old}
        assert not lost(old)

    play(tmp_path, scenario)


class Resetting:
    """Replicas that are well when asked, and reset every request."""

    def __init__(self):
        self.attempts = 0
        app = web.Application()
        app.router.add_get("/health", self._page)
        app.router.add_get("/v1/models", self._page)
        app.router.add_post("/v1/chat/completions", self._reset)
        self._runner = web.AppRunner(app)

    async def start(self, count):
        """The URLs of `count` of them."""
        await self._runner.setup()
        for _ in range(count):
            await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return [f"http://{host}:{port}" for host, port in self._runner.addresses]

    async def stop(self):
        await self._runner.cleanup()

    async def _page(self, request):
        return web.json_response({"object": "list", "data": [{"id": "mock", "object": "model"}]})

    async def _reset(self, request):
        self.attempts += 1
        request.transport.abort()
        return web.Response()


@pytest.mark.parametrize("seconds", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_retry_storm_stays_within_the_budget(tmp_path, seconds):
    rate = 100
    never = {"probe_interval_s": 0, "passive_failures": 10**6, "max_ejected_ratio": 0.0}

    async def main():
        failing = Resetting()
        replicas = [{"url": url} for url in await failing.start(4)]
        settings = {"replicas": replicas, "health": never, "retry": {"before_first_token": True}}
        async with Scene(tmp_path, **settings) as scene:
            start = time.monotonic()
            async with scene.load(rate=rate) as load:
                await asyncio.sleep(seconds)
            floor = 3 * (time.monotonic() - start + 1)
        await failing.stop()
        sent = len(load.answers)
        assert sent > 0.8 * rate * seconds
        assert sent < failing.attempts <= 1.2 * sent + floor
        assert {(a.status, a.code) for a in load.answers} == {(502, "upstream_error")}

    asyncio.run(main())


@pytest.mark.parametrize("calm_s, slow_s", [(5, 9), pytest.param(15, 45, marks=pytest.mark.slow)])
def test_a_replica_at_half_its_speed_is_fed_less_and_costs_no_request(tmp_path, calm_s, slow_s):
    async def scenario(scene):
        slow = scene.ids[0]
        async with scene.load(rate=60, tokens=60) as load:
            await asyncio.sleep(1 + calm_s)
            begin = time.monotonic()
            await scene.do("slow", factor=2.0)
            await asyncio.sleep(slow_s)
        shares = [load.share(slow, begin - calm_s, begin), load.share(slow, begin + 3)]
        before = load.p99_ttft_s(begin - calm_s, begin)
        # By the median of short windows: a moment in which the machine stood still is in one of
        # them, a slow replica that is fed as before in each.
        starts = [begin + t for t in range(min(10, slow_s - 6), slow_s - 1, 2)]
        after = statistics.median_low(load.p99_ttft_s(start, start + 2) for start in starts)
        assert not lost(load.answers)
        assert shares[1] < 0.7 * shares[0], shares
        assert after <= 1.5 * before + NOISE_S, (before, after)

    play(tmp_path, scenario, speedup=2.0)
