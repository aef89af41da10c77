"""Back-fill of the load history from a Prometheus that answers query_range."""

import asyncio
import contextlib

import pytest
from aiohttp import web
from fake_plane import free_port, play, until

from headrace.control.autoscale import backfill
from headrace.control.autoscale.profile import BIN_S
from headrace.control.autoscale.scaler import KEPT_BINS
from headrace.control.fetch import Fetcher, FetchError

NOW = 6_000_000  # a bin


class FakePrometheus:
    """Evaluates every query to `value(bin)`; None is a gap."""

    def __init__(self, value):
        self.value = value
        self.asked = []
        self.status = 200
        self.body = None

    async def start(self):
        app = web.Application()
        app.router.add_get("/api/v1/query_range", self._answer)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        port = free_port()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{port}"

    async def _answer(self, request):
        self.asked.append(dict(request.query))
        if self.body is not None or self.status != 200:
            return web.Response(body=self.body or b"", status=self.status)
        start, end, step = (int(request.query[k]) for k in ("start", "end", "step"))
        if (end - start) // step > 11_000:
            return web.json_response({"status": "error"}, status=400)
        values = [
            [float(at), str(value)]
            for at in range(start, end + 1, step)
            if (value := self.value(at // BIN_S - 1)) is not None
        ]
        result = [{"metric": {}, "values": values}] if values else []
        return web.json_response({"status": "success", "data": {"result": result}})


@contextlib.asynccontextmanager
async def prometheus(value):
    fake = FakePrometheus(value)
    await fake.start()
    fetcher = Fetcher()
    try:
        yield fake, fetcher
    finally:
        await fetcher.close()
        await fake.runner.cleanup()


def test_every_kept_bin_is_asked_for_once_and_gaps_stay_gaps():
    async def run():
        async with prometheus(lambda b: 512.0 if b % 2 else None) as (fake, fetcher):
            found = {}
            for span in backfill.spans(NOW):
                part = await backfill.fetch(fetcher, fake.url, "m", 256.0, span)
                assert not found.keys() & part.keys()
                found |= part
            wanted = {b for b in range(NOW - KEPT_BINS, NOW) if b % 2}
            assert found.keys() == wanted
            assert set(found.values()) == {2.0}
            assert len(fake.asked) == 3

    asyncio.run(run())


def test_a_model_name_cannot_leave_its_quotes():
    assert '{model="a\\"} or up{x=\\"\\\\"}' in backfill.query('a"} or up{x="\\')


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"no"),
        (200, b"<html>"),
        (200, b'{"data": {"result": [{}]}}'),
        (200, b'{"data": {"result": [{"values": [["x", "y"]]}]}}'),
    ],
)
def test_what_is_no_answer_is_an_error(status, body):
    async def run():
        async with prometheus(lambda b: 1.0) as (fake, fetcher):
            fake.status, fake.body = status, body
            with pytest.raises(FetchError):
                await backfill.fetch(fetcher, fake.url, "m", 1.0, backfill.Span(NOW - 2, NOW))

    asyncio.run(run())


def test_values_that_are_no_loads_are_left_out():
    values = {NOW - 3: "NaN", NOW - 2: -1.0, NOW - 1: 3.0}

    async def run():
        async with prometheus(values.get) as (fake, fetcher):
            found = await backfill.fetch(fetcher, fake.url, "m", 1.0, backfill.Span(NOW - 3, NOW))
            assert found == {NOW - 1: 3.0}

    asyncio.run(run())


def test_the_forecast_of_a_fresh_gateway_stands_on_prometheus():
    async def scenario(replica, plane):
        async with prometheus(lambda b: 1280.0) as (fake, _):
            one = await replica()
            up = await plane({"replicas": [one.url], "autoscale": {"prometheus_url": fake.url}})
            await until(lambda: up.state(one) == "ready")
            up.control.autoscale.look(NOW * BIN_S)
            assert up.control.autoscale.plans["m"].forecast is None
            await up.control.autoscale.fill_gaps(NOW * BIN_S)
            up.control.autoscale.look(NOW * BIN_S)
            assert up.control.autoscale.plans["m"].forecast == pytest.approx(5.0)
            asked = len(fake.asked)
            await up.control.autoscale.fill_gaps(NOW * BIN_S)
            assert len(fake.asked) == asked, "once is enough"

    play(scenario)
