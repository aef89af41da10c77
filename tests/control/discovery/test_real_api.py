"""List and watch against a real kube-apiserver and etcd, where both are on PATH."""

import asyncio
import contextlib
import os
import signal
import socket

import pytest
from real_api import ADMIN, PODS, RealApi, missing, until

from headrace.control.discovery import informer, shapes

client = pytest.importorskip("kubernetes_asyncio.client", reason="headrace[kubernetes] is missing")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(200),
    pytest.mark.skipif(bool(missing()), reason=f"not on PATH: {', '.join(missing())}"),
]

NS = "default"


def free_ports(count):
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with RealApi(tmp_path_factory.mktemp("api"), free_ports(3)) as api:
        for number in range(5):
            spec = {"containers": [{"name": "a", "image": "a"}]}
            api.make(PODS.format(NS), {"metadata": {"name": f"p{number}"}, "spec": spec})
        yield api


class Following(informer.Informer):
    """An informer of pods that counts its lists, and can do something before a page."""

    def __init__(self, pods, before_page=None):
        super().__init__(
            informer.Kind("pods", shapes.Pod, pods.list_namespaced_pod, {"namespace": NS}),
            lambda: None,
        )
        self.before_page = before_page
        self.pages = 0

    async def _page(self, more):
        self.pages += 1
        if self.before_page is not None and more.get("_continue"):
            self.before_page()
            self.before_page = None
        return await super()._page(more)

    @property
    def names(self):
        return sorted(name for _, name in self.objects)


def following(api, scenario, **more):
    """Run `scenario(an informer that follows)`."""

    async def run():
        settings = client.Configuration(host=api.url)
        settings.ssl_ca_cert = str(api.folder / "certs" / "apiserver.crt")
        settings.api_key = {"BearerToken": f"Bearer {ADMIN}"}
        async with client.ApiClient(settings) as connection:
            found = Following(client.CoreV1Api(connection), **more)
            task = asyncio.ensure_future(found.run())
            try:
                await scenario(found)
            finally:
                task.cancel()

    asyncio.run(run())


async def sees(found, names, timeout_s=20.0):
    async with asyncio.timeout(timeout_s):
        while found.names != names:
            await asyncio.sleep(0.02)


ALL = [f"p{number}" for number in range(5)]


def test_a_list_whose_pages_expire_on_the_way_is_taken_anew(api, monkeypatch, caplog):
    monkeypatch.setattr(informer, "PAGE", 2)

    def expire():
        annotation = {"metadata": {"annotations": {"a": "b"}}}
        api.patch(f"{PODS.format(NS)}/p0", annotation)
        api.compact()

    async def scenario(found):
        await sees(found, ALL)
        assert found.pages == 2 + 3

    following(api, scenario, before_page=expire)
    assert "may not list pods: 410 " in caplog.text


def test_a_watch_from_a_version_that_is_gone_is_refused_with_410(api):
    api.compact()
    api.stop()  # its watch cache begins where etcd's history does
    api.start()

    async def scenario(found):
        await sees(found, ALL)
        with pytest.raises(informer.Refused) as refusal:
            await found._watch("1")
        assert refusal.value.status == 410

    following(api, scenario)


def test_a_quiet_watch_stays_open_by_its_bookmarks(api):
    async def scenario(found):
        await sees(found, ALL)
        annotation = {"metadata": {"annotations": {"c": "d"}}}  # no bookmark before any event
        await asyncio.to_thread(api.patch, f"{PODS.format(NS)}/p0", annotation)
        await asyncio.sleep(informer.SILENCE_S + 20)
        assert found.pages == 1

    following(api, scenario)


def test_a_server_that_stops_answering_is_noticed_and_what_was_missed_is_seen(api, monkeypatch):
    monkeypatch.setattr(informer, "SILENCE_S", 2.0)
    monkeypatch.setattr(informer, "LIST_S", 1.0)
    pid = api.programs["kube-apiserver"].pid

    async def scenario(found):
        await sees(found, ALL)
        os.kill(pid, signal.SIGSTOP)
        try:
            before = found.pages
            async with asyncio.timeout(20):
                while found.pages < before + 2:
                    await asyncio.sleep(0.05)
            assert found.names == ALL
        finally:
            os.kill(pid, signal.SIGCONT)
        await asyncio.to_thread(until, lambda: api.call("GET", "/readyz")[0] == 200)
        await asyncio.to_thread(api.remove, f"{PODS.format(NS)}/p4")
        await sees(found, ALL[:4])

    following(api, scenario)
