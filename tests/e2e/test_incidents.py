"""Scripted incidents against the real command: what clients notice, and what the gateway says."""

import asyncio
import time

import pytest
from scene import Scene

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


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


def test_a_retry_storm_stays_within_the_budget(tmp_path):
    seconds, rate = 3.0, 100

    async def scenario(scene):
        await scene.do("kill", "all", what="server")
        start = time.monotonic()
        async with scene.load(rate=rate) as load:
            await asyncio.sleep(seconds)
        took = time.monotonic() - start
        retries = await scene.counter("retries_total")
        floor = 3 * (took + 1)
        assert retries <= 0.2 * len(load.answers) + floor
        assert len(load.answers) > 0.8 * rate * seconds

    never = {"interval_s": 30, "passive_failures": 10**6, "failure_threshold": 10**6}
    play(tmp_path, scenario, health=never, retry={"max_retries": 1})


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("factor", [2.0])
def test_one_replica_of_four_slows_down_under_load(tmp_path, factor):
    async def scenario(scene):
        async with scene.load(rate=60, tokens=60) as load:
            await asyncio.sleep(12)
            begin = time.monotonic()
            await scene.do("slow", factor=factor)
            await asyncio.sleep(25)
        before = load.p99_ttft_s(begin - 8, begin)
        shares = [load.share(scene.ids[0], begin + t, begin + t + 3) for t in (3, 6, 9)]
        after = load.p99_ttft_s(begin + 10, begin + 25)
        print(f"P99 TTFT before {before * 1e3:.0f} ms, after {after * 1e3:.0f} ms; shares {shares}")
        assert not lost(load.answers)
        assert max(shares) < 0.22
        assert after <= 1.5 * before + 0.02

    play(tmp_path, scenario, speedup=2.0)
