import argparse
import asyncio
import base64
import json

import aiohttp
import pytest
from fake_plane import until


async def call(made, method, path, body=None, **headers):
    """(status, headers, parsed body) of an admin call."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, made.admin + path, json=body, headers=headers) as answer,
    ):
        text = await answer.text()
        is_json = answer.content_type == "application/json"
        return answer.status, answer.headers, json.loads(text) if is_json else text


METADATA = "http://169.254.169.254/latest"


def ident(replica):
    return replica.url.removeprefix("http://")


def entry(*some):
    return {"replicas": [{"url": one.url} for one in some]}


def test_register_drain_undrain_and_remove(run):
    async def scenario(replica, plane):
        one, other = await replica(), await replica()
        made = await plane(entry(one))
        status, _, told = await call(made, "POST", "/replicas", {"url": other.url + "/"})
        assert (status, told["id"], told["sources"]) == (201, ident(other), ["admin"])
        await until(lambda: made.state(other) == "ready")
        status, _, told = await call(made, "POST", f"/replicas/{ident(other)}/drain")
        assert (status, told["state"]) == (200, "draining")
        await until(lambda: made.state(other) == "drained")
        status, _, told = await call(made, "POST", f"/replicas/{ident(other)}/undrain")
        assert status == 200
        await until(lambda: made.state(other) == "ready")
        assert (await call(made, "DELETE", f"/replicas/{ident(other)}"))[0] == 202
        await until(lambda: made.state(other) is None)
        assert (await call(made, "DELETE", f"/replicas/{ident(one)}?mode=now"))[0] == 202
        assert made.state(one) is None
        assert (await call(made, "GET", "/replicas"))[2] == {"replicas": []}

    run(scenario)


def test_a_replica_that_rejoins_in_mid_drain_is_the_same_member(run, monkeypatch):
    monkeypatch.setattr("headrace.control.judging.TICK_S", 60)  # nobody tells that it is empty

    async def scenario(replica, plane):
        one = await replica()
        made = await plane(entry(one))
        await until(lambda: made.state(one) == "ready")
        member = made.member(one)
        await call(made, "DELETE", f"/replicas/{ident(one)}?mode=drain")
        assert made.state(one) == "draining"
        await call(made, "POST", "/replicas", {"url": one.url})
        assert made.member(one) is member and made.state(one) == "ready"

    run(scenario)


def test_the_admin_wording_of_other_routers_works(run):
    async def scenario(replica, plane):
        one, other = await replica(), await replica()
        made = await plane(entry(one))
        assert (await call(made, "POST", f"/add_worker?url={other.url}"))[0] == 200
        await until(lambda: made.state(other) == "ready")
        workers = (await call(made, "GET", "/workers"))[2]
        assert workers["total"] == 2 and all(one["is_healthy"] for one in workers["workers"])
        assert (await call(made, "GET", "/list_workers"))[2] == {"urls": [one.url, other.url]}
        assert (await call(made, "POST", f"/remove_worker?url={other.url}"))[0] == 200
        await until(lambda: made.state(other) is None)
        status, _, _ = await call(made, "POST", "/workers", {"url": other.url, "model_id": "x"})
        assert status == 202
        await until(lambda: made.state(other) == "ready")
        assert list(made.member(other).cards) == ["x"]
        quoted = other.url.replace("/", "%2F").replace(":", "%3A")
        assert (await call(made, "DELETE", f"/workers/{quoted}"))[0] == 202
        await until(lambda: made.state(other) is None)

    run(scenario)


@pytest.mark.parametrize(
    "method, path, body, status, code",
    [
        ("POST", "/replicas/no-such/drain", None, 404, "not_found"),
        ("DELETE", "/replicas/127.0.0.1:1", None, 404, "not_found"),
        ("GET", "/nowhere", None, 404, "not_found"),
        ("PUT", "/reload", None, 405, "method_not_allowed"),
        ("POST", "/replicas", [], 400, "invalid_json"),
        ("POST", "/replicas", {"url": "ftp://x:1"}, 400, "invalid_config"),
        ("POST", "/replicas", {"url": "http://169.254.169.254:80"}, 403, "forbidden"),
        ("POST", "/replicas", {"url": "http://[fe80::1]:80"}, 403, "forbidden"),
        ("POST", "/replicas", {"url": "http://[::1]:9", "dcgm_url": METADATA}, 403, "forbidden"),
        ("POST", "/add_worker", None, 400, "invalid_request"),
        ("DELETE", "/replicas/127.0.0.1:1?mode=later", None, 404, "not_found"),
    ],
)  # fmt: skip
def test_wrong_calls_get_errors_in_the_shape_of_the_data_port(
    run, method, path, body, status, code
):
    async def scenario(replica, plane):
        made = await plane(entry(await replica()))
        seen, headers, told = await call(made, method, path, body)
        assert (seen, headers["x-headrace-error"], told["error"]["code"]) == (status, code, code)
        assert headers["x-request-id"]

    run(scenario)


def test_only_networks_on_the_list_are_accepted(run):
    async def scenario(replica, plane):
        one = await replica()
        made = await plane({**entry(one), "auth": {"replica_networks": ["10.0.0.0/8"]}})
        assert (await call(made, "POST", "/replicas", {"url": "http://127.0.0.1:9"}))[0] == 403
        assert (await call(made, "POST", "/replicas", {"url": "http://10.1.2.3:9"}))[0] == 201
        assert made.state(one) is not None  # the configuration's own are not asked

    run(scenario)


def test_pages_of_other_origins_change_nothing(run):
    async def scenario(replica, plane):
        made = await plane(entry(await replica()))
        host = made.admin.removeprefix("http://")
        path = f"/replicas/{made.control.config.replicas[0].id}/drain"
        for headers in (
            {"Origin": "http://evil.test"},
            {"Origin": "null"},
            {"Origin": "http://evil.test:1", "Host": "evil.test:1"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            assert (await call(made, "POST", path, **headers))[0] == 403
            assert made.control.registry.members[made.control.config.replicas[0].id].is_wanted
        assert (await call(made, "POST", path, Origin=f"http://{host}"))[0] == 200
        assert (await call(made, "GET", "/replicas", Origin="http://evil.test"))[0] == 200

    run(scenario)


def test_the_key_is_asked_for_everywhere_but_for_health(run):
    async def scenario(replica, plane):
        made = await plane({**entry(await replica()), "auth": {"admin_api_key": "adm"}})
        basic = base64.b64encode(b"any:adm").decode()
        for path in ("/replicas", "/metrics", "/dashboard", "/config"):
            status, headers, _ = await call(made, "GET", path)
            assert status == 401 and "Basic" in headers["www-authenticate"]
            for good in ("Bearer adm", f"Basic {basic}"):
                assert (await call(made, "GET", path, Authorization=good))[0] == 200
            for bad in ("Bearer ad", "Basic !", "Basic YWRt", "adm"):
                assert (await call(made, "GET", path, Authorization=bad))[0] == 401
        assert (await call(made, "GET", "/health"))[0] == 200
        assert (await call(made, "GET", "/replicas", **{"x-api-key": "adm"}))[0] == 200

    run(scenario)


def test_metrics_and_config_are_shown_without_secrets(run):
    async def scenario(replica, plane):
        one = await replica()
        made = await plane({"replicas": [{"url": one.url, "api_key": "very-secret"}]})
        await until(lambda: made.state(one) == "ready")
        status, _, page = await call(made, "GET", "/metrics")
        assert status == 200 and "headrace_bad_samples_total" in page
        status, _, told = await call(made, "GET", "/config")
        assert status == 200 and "very-secret" not in json.dumps(told)
        assert told["config"]["health"]["interval_s"] == 0.05

    run(scenario)


def write(path, *urls, **more):
    path.write_text(json.dumps({"replicas": [{"url": url} for url in urls], **more}))


def test_reload_swaps_a_good_configuration_and_keeps_the_last_good_one(run, tmp_path):
    async def scenario(replica, plane):
        one, other = await replica(), await replica()
        path = tmp_path / "headrace.yaml"
        write(path, one.url)
        made = await plane(entry(one), argparse.Namespace(config=str(path)))
        await until(lambda: made.state(one) == "ready")
        write(path, other.url, health={"interval_s": 0.05})
        status, _, told = await call(made, "POST", "/reload")
        assert (status, told) == (200, {"generation": 2})
        await until(lambda: made.state(one) is None and made.state(other) == "ready")
        path.write_text('{"nope": 1}')
        status, headers, _ = await call(made, "POST", "/reload")
        assert (status, headers["x-headrace-error"]) == (400, "invalid_config")
        assert (await call(made, "GET", "/config"))[2]["last_error"]
        assert (made.control.config_errors, made.control.config_generation) == (1, 2)
        assert made.state(other) == "ready"

    run(scenario)


def test_a_changed_file_is_reloaded_by_itself(run, tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.control.reload.POLL_S", 0.02)

    async def scenario(replica, plane):
        one, other = await replica(), await replica()
        path = tmp_path / "headrace.yaml"
        write(path, one.url)
        made = await plane(entry(one), argparse.Namespace(config=str(path)))
        write(path, one.url, other.url)
        await until(lambda: made.state(other) is not None)
        await asyncio.sleep(0.1)
        assert made.control.config_generation == 2

    run(scenario)
