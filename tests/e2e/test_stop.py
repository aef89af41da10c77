"""The end of a gateway, as an init system brings it about: SIGTERM to every process of it."""

import asyncio
import os
import signal

import pytest
from scene import Load, Scene

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


def test_a_signal_to_the_whole_group_settles_drains_and_restarts_nothing(tmp_path):
    async def scenario():
        settings = {"processes": 2, "drain_settle_s": 1.0}
        async with Scene(tmp_path, count=1, speedup=2.0, server=settings) as scene:
            load = Load()
            streams = [asyncio.ensure_future(scene.ask(load, f"s{n}", 120)) for n in range(6)]
            while not all(answer.first_s for answer in load.answers) or not load.answers:
                await asyncio.sleep(0.01)
            os.killpg(scene.gateway.process.pid, signal.SIGTERM)
            await asyncio.sleep(0.3)
            late = [asyncio.ensure_future(scene.ask(load, f"late {n}", 5)) for n in range(6)]
            await asyncio.gather(*streams, *late)
            code = await asyncio.to_thread(scene.gateway.process.wait, 10)
            assert [a for a in load.answers if not a.is_good] == []
            assert code == 0
            assert "restart" not in scene.gateway.log.read_text()

    asyncio.run(scenario())
