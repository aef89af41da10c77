"""KV events: captured messages of vLLM 0.32.0, and a publisher on real ZMQ sockets."""

import asyncio
import contextlib
import itertools
import json
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from chat_models import FakeEngine, bracketed, byte_level, chatml, sentence_piece
from fake_plane import play, until
from hypothesis import given
from hypothesis import strategies as st
from kv_publisher import Publisher, as_map, batch
from route_rig import settings

from headrace.control.kv import subscriber as subscriber_module
from headrace.control.kv.events import (
    BadEvents,
    Cleared,
    Event,
    Removed,
    Sequence,
    Step,
    Stored,
    number_of,
    read,
)
from headrace.core.balancer import Balancer
from headrace.core.explanation import explain
from headrace.core.request import RouteRequest
from headrace.core.scan import BodyScan

# Sent by a real vLLM 0.32.0: an 80-token prompt, the same with another salt, 64 further tokens.
CAPTURE = Path(__file__).parents[2] / "fixtures" / "vllm-0.32.0-kv-events.jsonl"
MESSAGES = [json.loads(line) for line in CAPTURE.read_text().splitlines()]


STORED = {"type": "BlockStored", "block_hashes": [1, 2**64 - 1], "token_ids": [0] * 32}
REMOVED = {"type": "BlockRemoved", "block_hashes": [7]}
CLEARED = {"type": "AllBlocksCleared"}


def test_captured_messages_are_read():
    found = [read(bytes.fromhex(message["payload_hex"])) for message in MESSAGES]
    removed, again, stored = found[0]
    assert removed.block_hashes == [0xFA65E92AFA5B4471]
    assert isinstance(again, Removed)
    assert stored.block_hashes == [0x85F88C004E12C2D7, 0xF83ECCE03AEDD3D4]
    assert (stored.parent_block_hash, stored.block_size) == (None, 32)
    assert stored.token_ids == list(range(700, 764))
    assert found[1][-1].extra_keys == [["tenant-a"], None]
    assert [type(event) for event in found[3]] == [Removed]


OLD_STORED = ["BlockStored", [1, 2], None, [7] * 32, 16, None, "GPU", "sql"]


def test_events_are_maps_or_arrays():
    wanted = Stored([1, 2], None, [7] * 32, 16, None, "GPU", "sql")
    assert read(batch(OLD_STORED, ["BlockRemoved", [b"\x01" * 32]], ["AllBlocksCleared"])) == [
        wanted,
        Removed([b"\x01" * 32]),
        Cleared(),
    ]
    assert read(batch(OLD_STORED[:6])) == [Stored([1, 2], None, [7] * 32, 16)]
    assert read(batch()) == []
    assert read(batch(CLEARED, {"type": "Unheard"}, ["Unheard", 3])) == [Cleared()]


@pytest.mark.parametrize("more", [{"medium": "CPU"}, {"group_idx": 1}])
def test_other_memory_and_further_attention_groups_are_left_out(more):
    assert read(batch({**STORED, **more}, {**REMOVED, **more}, CLEARED)) == [Cleared()]


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"\xff", b"\x93\x01", msgspec.msgpack.encode([1.0]), batch(3), batch({}), batch([])),
        b"\x91" * 100_000,
        batch({**STORED, "token_ids": [-1]}),
        batch({**STORED, "block_size": 0}),
        batch({**STORED, "block_hashes": ["x"]}),
    ],
)
def test_what_is_no_batch_is_refused(payload):
    with pytest.raises(BadEvents):
        read(payload)


@given(st.binary(max_size=200))
def test_any_bytes_give_events_or_a_refusal(payload):
    with contextlib.suppress(BadEvents):
        assert all(isinstance(event, Event) for event in read(payload))


def test_gaps_and_new_beginnings_show_in_the_sequence():
    sequence = Sequence()
    steps = [sequence.take(n) for n in (26, 27, 30, 31, 0, 1)]
    assert steps == [Step.FIRST, Step.NEXT, Step.GAP, Step.NEXT, Step.AGAIN, Step.NEXT]
    assert number_of((2**64 - 1).to_bytes(8, "big")) == 2**64 - 1
    with pytest.raises(BadEvents):
        number_of(b"\x00")


def listening(scenario, *, replay=True, engine=None, tokenizer=None, before=()):
    """Run `scenario(publisher, member, up)` with a gateway that has heard event 0 and 1."""

    async def run(replica, plane):
        publisher = Publisher()
        try:
            one = await replica()
            one.tokenize = engine and engine.tokenize
            ports = {"kv_events_port": publisher.port}
            if replay:
                ports["kv_replay_port"] = publisher.replay_port
            if tokenizer is not None:
                ports["kv_tokenizers"] = [{"model": "m", "path": tokenizer}]
            for number, events in enumerate(before):
                await publisher.send(number, *events, lost=True)
            up = await plane({"replicas": [one.url], "control": ports})
            await until(lambda: up.state(one) == "ready")
            member = up.member(one)
            first = len(before)
            for _ in range(200):  # until the subscription has arrived
                await publisher.send(first, STORED)
                await asyncio.sleep(0.02)
                if member.kv_events["stored_blocks"]:
                    break
            await asyncio.sleep(0.1)
            await publisher.send(first + 1, STORED)
            seen = {}
            while seen != member.kv_events:
                seen = dict(member.kv_events)
                await asyncio.sleep(0.1)
            await scenario(publisher, member, up)
        finally:
            publisher.close()

    play(run)


def test_a_cleared_cache_is_forgotten_and_nothing_else_is():
    async def scenario(publisher, member, up):
        before, stored = member.generation, member.kv_events["stored_blocks"]
        await publisher.send(2, STORED, REMOVED)
        await until(lambda: member.kv_events["stored_blocks"] == stored + 2)
        assert member.generation == before
        await publisher.send(3, CLEARED)
        await until(lambda: member.generation == before + 1)
        assert member.kv_events["cleared"] == 1
        assert member.state == "ready"

    listening(scenario)


def test_lost_messages_are_replayed():
    async def scenario(publisher, member, up):
        before, stored = member.generation, member.kv_events["stored_blocks"]
        await publisher.send(2, STORED, lost=True)
        await publisher.send(3, STORED, lost=True)
        await publisher.send(4, REMOVED)
        await until(lambda: member.kv_events["stored_blocks"] == stored + 4)
        assert publisher.asked == [2]
        assert member.generation == before

    listening(scenario)


@pytest.mark.parametrize("replay", [True, False])
def test_messages_that_are_lost_for_good_void_what_was_known(replay):
    async def scenario(publisher, member, up):
        before = member.generation
        del publisher.kept[0]
        await publisher.send(5, STORED)
        await until(lambda: member.generation > before)

    listening(scenario, replay=replay)


def test_after_lost_messages_what_the_engine_still_remembers_is_taken(engine, tmp_path):
    async def scenario(publisher, member, up):
        publisher.kept.clear()
        await publisher.send(4, as_map(engine.store(chatml(CHAT))), lost=True)
        await publisher.send(5, STORED)
        await until(lambda: Asking(up, member).cached_tokens(messages=CHAT) > 100)
        assert publisher.asked == [2, 0]

    listening(scenario, engine=engine, tokenizer=str(tmp_path))


def test_events_that_start_anew_void_what_was_known():
    async def scenario(publisher, member, up):
        before = member.generation
        await publisher.send(0, STORED)
        await until(lambda: member.generation == before + 1)

    listening(scenario)


@pytest.mark.parametrize("first_heard", [0, 1, 7])
def test_a_new_engine_is_asked_for_its_template_and_its_events(engine, tmp_path, first_heard):
    """Whether or not its numbers have overtaken those of the former one when it is heard."""

    async def scenario(publisher, member, up):
        await publisher.send(2, as_map(engine.store(chatml(CHAT))))
        await until(lambda: Asking(up, member).cached_tokens(messages=CHAT) > 100)
        up.control.take_restart(member)
        await until(lambda: Asking(up, member).cached_tokens(messages=CHAT) == 0)
        engine.template = bracketed
        engine.cached.clear()
        publisher.kept.clear()
        event = engine.store(bracketed(CHAT))
        for number in range(first_heard + 1):
            said = as_map(event) if number == 0 else REMOVED
            await publisher.send(number, said, lost=number < first_heard)
        await until(lambda: Asking(up, member).cached_tokens(messages=CHAT) > 100)
        gone = {"type": "BlockRemoved", "block_hashes": event.block_hashes}
        await publisher.send(first_heard + 1, gone)
        await until(lambda: Asking(up, member).cached_tokens(messages=CHAT) == 0)
        assert member.kv_events["known_blocks"] == 0

    listening(scenario, engine=engine, tokenizer=str(tmp_path))


def test_between_messages_that_wait_control_takes_its_turns():
    async def scenario(publisher, member, up):
        seen = [member.kv_events["stored_blocks"]]
        for number in range(2, 502):
            await publisher.send(number, STORED)
        while seen[-1] < seen[0] + 1000:
            await asyncio.sleep(0)
            seen.append(member.kv_events["stored_blocks"])
        assert max(b - a for a, b in itertools.pairwise(seen)) <= 2 * 3

    listening(scenario)


def test_an_engine_that_cannot_say_yet_is_asked_again(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(subscriber_module, "UNANSWERED_S", 0.1)
    monkeypatch.setattr(subscriber_module, "NOT_YET_S", 0.1)
    say, refusals = engine.tokenize, [web.HTTPServiceUnavailable] * 5

    async def tokenize(asked):
        if refusals:
            raise refusals.pop()()
        return await say(asked)

    engine.tokenize = tokenize

    async def scenario(publisher, member, up):
        assert not refusals
        assert member.kv_events["text"] == "read"

    listening(scenario, engine=engine, tokenizer=str(tmp_path))


def test_a_tokenizer_that_comes_later_is_taken(engine, tmp_path):
    path = tmp_path / "tokenizer.json"
    held = path.read_bytes()
    path.unlink()

    async def scenario(publisher, member, up):
        assert "no tokenizer" in member.kv_events["text"]
        path.write_bytes(held)
        up.control.take_restart(member)
        await publisher.send(2, STORED)
        await until(lambda: member.kv_events["text"] == "read")

    listening(scenario, engine=engine, tokenizer=str(tmp_path))


def test_a_bad_message_is_counted_and_the_next_one_taken():
    async def scenario(publisher, member, up):
        stored = member.kv_events["stored_blocks"]
        await publisher.pub.send_multipart([b"kv-events", b"short", b""])
        await publisher.pub.send_multipart([b"one"])
        await publisher.send(2, STORED)
        await until(lambda: member.kv_events["stored_blocks"] == stored + 2)

    listening(scenario)


LONG = "the river flows under bridges and if the water is high then it flows over them. "
CHAT = [{"role": "user", "content": LONG * 9}]


@pytest.fixture
def engine(tmp_path):
    tokenizer = byte_level(tmp_path / "tokenizer.json")
    return FakeEngine(tokenizer, chatml, block_tokens=16)


class Asking:
    """The router's side of the segment: how much of a prompt it takes to be cached."""

    def __init__(self, up, member):
        self.balancer = Balancer(up.segment, 1, settings())
        self.balancer.books.set_model(1, 1, [member.slot], [1])
        self.now_ns = 10**9

    def cached_tokens(self, **body):
        request = RouteRequest()
        request.model = 1
        request.read(BodyScan(json.dumps({"model": "m", **body}).encode()), b"m")
        self.now_ns += 10**9
        found = explain(self.balancer, request, self.now_ns)["replicas"][0]
        return found["terms"]["hit_tokens"]


def test_what_another_gateway_sent_is_known_until_the_engine_drops_it(engine, tmp_path):
    async def scenario(publisher, member, up):
        asking = Asking(up, member)
        assert asking.cached_tokens(messages=CHAT) == 0
        event = engine.store(chatml(CHAT))
        await publisher.send(2, as_map(event))
        await until(lambda: member.kv_events["known_blocks"] >= len(event.block_hashes))
        assert asking.cached_tokens(messages=CHAT) > 100
        assert asking.cached_tokens(messages=[{**CHAT[0], "content": "No. " + LONG * 9}]) == 0
        assert up.segment.row(member.slot)["followed"]
        await publisher.send(3, {"type": "BlockRemoved", "block_hashes": event.block_hashes})
        await until(lambda: asking.cached_tokens(messages=CHAT) == 0)
        assert member.kv_events["text"] == "read"

    listening(scenario, engine=engine, tokenizer=str(tmp_path))


def test_what_was_stored_before_the_gateway_came_is_replayed(engine, tmp_path):
    async def scenario(publisher, member, up):
        assert publisher.asked == [0]
        assert Asking(up, member).cached_tokens(messages=CHAT) > 100

    before = [[as_map(engine.store(chatml(CHAT)))], [STORED]]
    listening(scenario, engine=engine, tokenizer=str(tmp_path), before=before)


def test_a_cleared_cache_holds_nothing_of_the_text_before(engine, tmp_path):
    async def scenario(publisher, member, up):
        asking = Asking(up, member)
        await publisher.send(2, as_map(engine.store(chatml(CHAT))))
        await until(lambda: asking.cached_tokens(messages=CHAT) > 100)
        await publisher.send(3, CLEARED)
        await until(lambda: asking.cached_tokens(messages=CHAT) == 0)
        assert member.kv_events["known_blocks"] == 0
        assert up.segment.row(member.slot)["followed"]

    listening(scenario, engine=engine, tokenizer=str(tmp_path))


@pytest.mark.parametrize("fault", ["no file", "no /tokenize", "another tokenizer"])
def test_events_without_a_reading_count_and_say_why(engine, tmp_path, fault):
    path = tmp_path / "tokenizer.json"
    if fault == "no file":
        path.unlink()
    if fault == "another tokenizer":
        sentence_piece(path)

    async def scenario(publisher, member, up):
        wanted = "no tokenizer" if fault == "no file" else "does not spell"
        assert wanted in member.kv_events["text"]
        stored = member.kv_events["unread_blocks"]
        event = engine.store(chatml(CHAT))
        await publisher.send(2, as_map(event))
        await until(lambda: member.kv_events["unread_blocks"] == stored + len(event.block_hashes))

    asked = None if fault == "no /tokenize" else engine
    listening(scenario, engine=asked, tokenizer=str(tmp_path))
