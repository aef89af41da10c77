import asyncio
import json
import os

from hypothesis import given
from hypothesis import strategies as st

from headrace import config as configuration
from headrace.config import ReplicaConfig
from headrace.control import edge
from headrace.control.discovery import file, sources
from headrace.control.discovery.merge import ADMIN, CONFIG, DNS, FILE, Wanted
from headrace.control.discovery.sources import Sources
from headrace.control.discovery.watch import FileWatch
from headrace.control.tally import Tally
from headrace.errors import ConfigError


def replica(name, **more):
    return ReplicaConfig(url=f"http://{name}:8000", **more)


def ids(wanted):
    return sorted(wanted.merged())


def test_lists_are_merged_by_url_and_what_was_written_down_wins():
    wanted = Wanted()
    wanted.set_list(f"{DNS}:x", [replica("a"), replica("b")])
    wanted.set_list(FILE, [replica("b", weight=2.0)])
    wanted.set_list(CONFIG, [replica("c")])
    wanted.add(replica("b", weight=3.0))
    assert ids(wanted) == ["a:8000", "b:8000", "c:8000"]
    assert wanted.merged()["b:8000"].weight == 3.0
    assert wanted.sources_of("b:8000") == [ADMIN, FILE, f"{DNS}:x"]


def test_a_source_without_matches_counts_zero_and_a_silent_one_not_at_all():
    wanted = Wanted()
    wanted.set_list(CONFIG, [])
    wanted.set_list(FILE, [replica("a"), replica("b")])
    wanted.set_list("kubernetes", [])
    assert wanted.counts() == {FILE: 2, "kubernetes": 0}


def test_what_was_taken_out_stays_out_until_it_is_named_anew():
    wanted = Wanted()
    wanted.set_list(FILE, [replica("a"), replica("b")])
    wanted.strike("a:8000")
    wanted.set_list(FILE, [replica("a"), replica("b")])  # the same list again is nothing new
    assert ids(wanted) == ["b:8000"]
    wanted.set_list(FILE, [replica("b")])
    wanted.set_list(FILE, [replica("a"), replica("b")])
    assert ids(wanted) == ["a:8000", "b:8000"]
    wanted.strike("a:8000")
    wanted.add(replica("a"))
    assert ids(wanted) == ["a:8000", "b:8000"]
    wanted.strike("b:8000")
    wanted.add(replica("a", weight=3.0))
    wanted.start_over([replica("a")])
    assert ids(wanted) == ["a:8000", "b:8000"]
    assert wanted.merged()["a:8000"].weight == 1.0


NAMES = st.sampled_from("abcd")
STEPS = st.one_of(
    st.tuples(st.sampled_from([CONFIG, FILE]), st.lists(NAMES, unique=True)),
    st.tuples(st.just("add"), NAMES),
    st.tuples(st.just("strike"), NAMES),
)


@given(st.lists(STEPS))
def test_merged_is_exactly_what_some_list_has_and_nobody_struck(steps):
    wanted, lists, by_hand, struck = Wanted(), {CONFIG: set(), FILE: set()}, set(), set()
    for kind, what in steps:
        if kind == "add":
            wanted.add(replica(what))
            by_hand.add(what)
            struck.discard(what)
        elif kind == "strike":
            wanted.strike(f"{what}:8000")
            by_hand.discard(what)
            struck.add(what)
        else:
            wanted.set_list(kind, [replica(name) for name in what])
            struck -= set(what) - lists[kind]
            lists[kind] = set(what)
        expected = (set().union(*lists.values(), by_hand)) - struck
        assert ids(wanted) == sorted(f"{name}:8000" for name in expected)


def test_a_file_counts_when_it_rests(tmp_path):
    path = tmp_path / "list"
    watch = FileWatch(str(path))
    assert not watch.has_changed()
    path.write_text("one")
    assert watch.has_changed() and not watch.has_changed()
    path.write_text("longer")
    assert not watch.has_changed()  # perhaps still being written
    assert watch.has_changed() and not watch.has_changed()
    path.unlink()
    assert not watch.has_changed() and not watch.has_changed()


def test_a_swapped_link_is_another_version(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    link = tmp_path / "link"
    link.symlink_to("one")
    watch = FileWatch(str(link))
    watch.take()
    os.unlink(link)
    link.symlink_to("two")
    assert [watch.has_changed() for _ in range(3)] == [False, True, False]


def test_a_bad_file_keeps_the_last_good_list(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "POLL_S", 0.01)
    path = tmp_path / "replicas.json"
    seen = []

    async def scenario():
        task = asyncio.ensure_future(
            file.follow(str(path), lambda r: seen.append([x.id for x in r]))
        )
        for content in (["http://a:1"], "][", {"replicas": [{"url": "http://b:2"}]}):
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_text(text)
            await asyncio.sleep(0.06)
        task.cancel()

    asyncio.run(scenario())
    assert seen == [["a:1"], ["b:2"]]


def test_sources_that_are_gone_take_their_replicas_along(tmp_path):
    path = tmp_path / "list"
    path.write_text('["http://f:1"]')
    changes = []

    async def scenario():
        found = Sources(lambda: changes.append(1), Tally())
        tree = {"replicas": ["http://c:1"], "discovery": {"file": {"path": str(path)}}}
        found.configure(configuration.parse(tree))
        assert ids(found.wanted) == ["c:1"]
        while not changes:
            await asyncio.sleep(0.01)
        assert ids(found.wanted) == ["c:1", "f:1"]
        found.configure(configuration.parse({"replicas": ["http://c:1"]}))
        assert ids(found.wanted) == ["c:1"]
        found.close()

    asyncio.run(scenario())


def test_a_source_that_fails_begins_again_and_one_that_cannot_begin_says_why(monkeypatch, caplog):
    monkeypatch.setattr(edge, "PAUSE_S", 0.01)
    monkeypatch.setattr(sources, "RETRY_S", 0.01)
    outcomes = iter([RuntimeError("a defect"), ConfigError("no credentials"), None])
    changes = []
    tally = Tally()

    async def follow(path, publish):
        if (outcome := next(outcomes)) is not None:
            raise outcome
        publish([replica("f")])
        await asyncio.Event().wait()

    monkeypatch.setattr(file, "follow", follow)

    async def scenario():
        found = Sources(lambda: changes.append(1), tally)
        found.configure(configuration.parse({"discovery": {"file": {"path": "/list"}}}))
        async with asyncio.timeout(5):
            while not changes:
                await asyncio.sleep(0.01)
        assert ids(found.wanted) == ["f:8000"]
        found.close()

    asyncio.run(scenario())
    assert tally.errors["discovery"] == 1
    assert "no credentials; next try in 0.01 s" in caplog.text
