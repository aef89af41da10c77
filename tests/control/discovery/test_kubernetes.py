"""List and watch against an API server that misbehaves."""

import asyncio
import contextlib

import pytest
from fake_api import FakeApi, endpoint_slice, pod

from headrace.config import Kubernetes
from headrace.control.discovery import informer
from headrace.control.discovery.kubernetes import follow

client = pytest.importorskip("kubernetes_asyncio.client", reason="headrace[kubernetes] is missing")

LABELS = {"app": "vllm"}
SETTINGS = Kubernetes(enabled=True, namespace="ns", selector=LABELS)


@contextlib.asynccontextmanager
async def following(settings=SETTINGS, prepare=None):
    """(fake API server, list of published URL lists) with the source running."""
    fake = FakeApi()
    await fake.start()
    if prepare:
        prepare(fake)
    api = client.ApiClient(client.Configuration(host=fake.url))
    published = []
    task = asyncio.ensure_future(
        follow(settings, lambda found: published.append([r.url for r in found]), api)
    )
    try:
        yield fake, published
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await api.close()
        await fake.stop()


async def until(condition, timeout_s=5.0):
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(informer, "BACKOFF_FIRST_S", 0.01)
    monkeypatch.setattr(informer, "BACKOFF_MAX_S", 0.05)


def one(address, conditions=None):
    return endpoint_slice("s", [(address, None, conditions or {"ready": True})], labels=LABELS)


A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


def test_changes_arrive_by_watch():
    async def run():
        async with following(prepare=lambda f: f.put("endpointslices", one("10.0.0.1"))) as (f, p):
            await until(lambda: p == [[A]])
            await until(lambda: f.watchers["endpointslices"])
            f.put("endpointslices", one("10.0.0.2"))
            await until(lambda: p[-1] == [B])
            f.bookmark()
            f.put("endpointslices", one("10.0.0.2", {"ready": False, "terminating": True}))
            await until(lambda: p[-1] == [])
            assert f.lists == 2

    asyncio.run(run())


def test_a_missed_delete_is_repaired_at_the_next_list():
    async def run():
        def prepare(f):
            f.put("pods", pod("a", "10.0.0.1", labels=LABELS))
            f.put("pods", pod("b", "10.0.0.2", labels=LABELS))

        async with following(prepare=prepare) as (f, p):
            await until(lambda: p[-1:] == [[A, B]] and f.watchers["pods"])
            f.delete("pods", "b", silent=True)
            await asyncio.sleep(0.1)
            assert p[-1] == [A, B]
            f.drop()
            await until(lambda: p[-1] == [A])

    asyncio.run(run())


@pytest.mark.parametrize("status", [410, 500])
def test_a_server_that_refuses_everything_is_not_stormed(monkeypatch, status):
    monkeypatch.setattr(informer, "BACKOFF_FIRST_S", 0.05)
    monkeypatch.setattr(informer, "BACKOFF_MAX_S", 0.2)

    async def run():
        async with following(prepare=lambda f: setattr(f, "refuse", (status, {}))) as (f, _):
            await asyncio.sleep(0.5)
            assert 2 <= f.refused <= 30

    asyncio.run(run())


def test_410_lists_again_soon():
    async def run():
        async with following(prepare=lambda f: f.put("endpointslices", one("10.0.0.1"))) as (f, p):
            await until(lambda: p == [[A]] and f.watchers["endpointslices"] and f.watchers["pods"])
            f.put("endpointslices", one("10.0.0.2"), silent=True)
            f.error(410)
            await until(lambda: p[-1] == [B])

    asyncio.run(run())


def test_a_flapping_server_removes_nobody():
    async def run():
        async with following(prepare=lambda f: f.put("endpointslices", one("10.0.0.1"))) as (f, p):
            await until(lambda: p == [[A]] and f.watchers["endpointslices"])
            for status in (500, 503, 429):
                f.refuse = (status, {"message": "no"})
                f.drop()
                await asyncio.sleep(0.05)
                f.refuse = None
                await asyncio.sleep(0.05)
            f.list_delay_s = 0.1
            f.drop()
            await asyncio.sleep(0.3)
            assert p == [[A]]

    asyncio.run(run())


def test_long_lists_come_in_pages():
    async def run():
        def prepare(f):
            f.page = 3
            for n in range(10):
                f.put("pods", pod(f"p{n}", f"10.0.0.{n + 1}", labels=LABELS))

        async with following(prepare=prepare) as (_, p):
            await until(lambda: p and len(p[-1]) == 10)

    asyncio.run(run())


def test_a_change_between_list_and_watch_is_seen():
    async def run():
        async with following(prepare=lambda f: f.put("endpointslices", one("10.0.0.1"))) as (f, p):
            await until(lambda: p == [[A]] and f.watchers["endpointslices"] and f.watchers["pods"])
            watch = f._watch

            async def change_first(request, resource):
                if resource == "endpointslices":
                    f.put("endpointslices", one("10.0.0.2"))
                    f._watch = watch
                return await watch(request, resource)

            f._watch = change_first
            f.drop()
            await until(lambda: p[-1] == [B])
            assert f.lists == 4

    asyncio.run(run())


def test_pages_that_expire_on_the_way_are_asked_for_anew(monkeypatch):
    monkeypatch.setattr(informer, "PAGE", 2)

    async def run():
        async with following() as (f, p):
            await until(lambda: p == [[]] and f.watchers["pods"])
            for n in range(5):
                f.put("pods", pod(f"p{n}", f"10.0.0.{n + 1}", labels=LABELS), silent=True)
            f.list_delay_s = 0.1
            f.drop()
            before = f.lists
            await until(lambda: f.lists >= before + 2)
            f.version += 1
            f.compact()
            f.list_delay_s = 0.0
            await until(lambda: len(p[-1]) == 5)

    asyncio.run(run())


def test_a_forbidden_verb_is_named_with_its_resource(caplog):
    async def run():
        async with following(prepare=lambda f: setattr(f, "refuse", (403, {"m": "no"}))) as (_, p):
            await until(lambda: "on endpointslices" in caplog.text and "on pods" in caplog.text)
            assert p == []

    asyncio.run(run())
    assert "may not list endpointslices.discovery.k8s.io: 403" in caplog.text
    assert "grant the verb list on pods" in caplog.text


def test_a_selector_without_matches_is_warned_of(caplog):
    async def run():
        async with following(prepare=lambda f: f.put("pods", pod("a", "10.0.0.1"))) as (_, p):
            await until(lambda: p == [[]])

    asyncio.run(run())
    assert "matches nothing" in caplog.text


NO_OBJECTS = [None, 7, "text", [], {}, {"metadata": None}, {"metadata": {"name": 7}}]
WRONG_SLICES = [
    {"metadata": {"name": "s"}, "endpoints": {"addresses": ["10.0.0.9"]}},
    {"metadata": {"name": "s", "labels": LABELS}, "endpoints": [7]},
    {"metadata": {"name": "s", "labels": LABELS}, "endpoints": [{"addresses": "10.0.0.9"}]},
    {"metadata": {"name": "s", "labels": [LABELS]}, "endpoints": []},
]


def test_objects_of_other_shapes_are_left_out_and_the_rest_stays(caplog):
    async def run():
        def prepare(f):
            f.put("endpointslices", one("10.0.0.1"))
            f.objects["pods"] |= dict(enumerate(NO_OBJECTS))

        async with following(prepare=prepare) as (f, p):
            await until(lambda: p == [[A]] and f.watchers["endpointslices"] and f.watchers["pods"])
            for entry in [*NO_OBJECTS, *WRONG_SLICES]:
                f.tell("endpointslices", {"type": "ADDED", "object": entry})
            f.put("endpointslices", one("10.0.0.2"))
            await until(lambda: p[-1] == [B])
            f.objects["pods"].clear()
            f.put("pods", pod("a", "10.0.0.1", labels=LABELS))
            await until(lambda: p[-1] == [A, B])

    asyncio.run(run())
    assert "pods: left out: Expected `object`, got `null`" in caplog.text
    assert "Expected `array | null`, got `object` - at `$.endpoints`" in caplog.text


@pytest.mark.parametrize(
    "event",
    [[], {}, {"type": "ADDED"}, {"type": "ERROR", "object": "x"}, {"type": "DELETED", "object": 7}],
)
def test_an_event_that_is_none_ends_the_watch_and_not_the_discovery(event):
    async def run():
        async with following(prepare=lambda f: f.put("endpointslices", one("10.0.0.1"))) as (f, p):
            await until(lambda: p == [[A]] and f.watchers["endpointslices"])
            f.tell("endpointslices", event)
            f.put("endpointslices", one("10.0.0.2"), silent=True)
            await until(lambda: p[-1] == [B])

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"metadata": {"continue": "more"}, "items": []}, "a list of more than 5 pages"),
        ({"metadata": {"resourceVersion": "1"}, "items": ["x" * 5000]}, "a page of more than"),
        ([], "the answer is no list"),
        ({"metadata": {"resourceVersion": "1"}, "items": 7}, "not iterable"),
        ({"metadata": {}}, "resourceVersion"),
    ],
    ids=["endless", "huge", "no list", "items", "no version"],
)
def test_a_list_that_makes_no_sense_leaves_what_was_seen(monkeypatch, caplog, answer, complaint):
    monkeypatch.setattr(informer, "MAX_PAGE_BYTES", 4000)
    monkeypatch.setattr(informer, "MAX_PAGES", 5)

    async def run():
        async with following(prepare=lambda f: f.put("endpointslices", one("10.0.0.1"))) as (f, p):
            await until(lambda: p == [[A]] and f.watchers["endpointslices"])
            f.refuse = (200, answer)
            f.drop()
            await until(lambda: complaint in caplog.text)
            f.refuse = None
            f.put("endpointslices", one("10.0.0.2"), silent=True)
            await until(lambda: p == [[A], [B]])

    asyncio.run(run())


def test_a_list_that_never_comes_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(informer, "LIST_S", 0.1)

    async def run():
        def prepare(f):
            f.put("endpointslices", one("10.0.0.1"))
            f.list_delay_s = 60.0

        async with following(prepare=prepare) as (f, p):
            await until(lambda: f.lists >= 4)
            f.list_delay_s = 0.0
            await until(lambda: p == [[A]])

    asyncio.run(run())


def test_a_watch_without_a_sign_of_life_is_dead_and_bookmarks_are_one(monkeypatch):
    monkeypatch.setattr(informer, "SILENCE_S", 0.3)

    async def run():
        async with following(prepare=lambda f: f.put("endpointslices", one("10.0.0.1"))) as (f, p):
            await until(lambda: p == [[A]] and f.watchers["endpointslices"] and f.watchers["pods"])
            for _ in range(12):
                f.bookmark()
                await asyncio.sleep(0.05)
            assert f.lists == 2
            f.delete("endpointslices", "s", silent=True)
            await until(lambda: p == [[A], []])

    asyncio.run(run())


def test_what_a_status_object_says_is_quoted_in_one_line(caplog):
    said = {"kind": "Status", "message": 'pods is forbidden: User "x"\ncannot list', "code": 403}

    async def run():
        async with following(prepare=lambda f: setattr(f, "refuse", (403, said))):
            await until(lambda: "on pods" in caplog.text)

    asyncio.run(run())
    assert 'may not list pods: 403 pods is forbidden: User "x" cannot list; grant' in caplog.text
