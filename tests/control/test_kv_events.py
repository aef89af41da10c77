"""KV events: captured messages of vLLM 0.32.0, and a publisher on real ZMQ sockets."""

import asyncio
import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from fake_plane import play, until
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.kv_events import BadEvents, Sequence, Step, Summary, number_of, read

# Sent by a real vLLM 0.32.0: an 80-token prompt, the same with another salt, 64 further tokens.
CAPTURE = Path(__file__).parents[1] / "fixtures" / "vllm-0.32.0-kv-events.jsonl"
MESSAGES = [json.loads(line) for line in CAPTURE.read_text().splitlines()]


def batch(*events):
    return msgspec.msgpack.encode([1.0, list(events), 0])


STORED = {"type": "BlockStored", "block_hashes": [1, 2**64 - 1], "token_ids": [0] * 32}
REMOVED = {"type": "BlockRemoved", "block_hashes": [7]}
CLEARED = {"type": "AllBlocksCleared"}


def test_captured_messages_are_summed_up():
    found = [read(bytes.fromhex(message["payload_hex"])) for message in MESSAGES]
    assert found[0] == Summary(stored=2, removed=2)
    assert found[3] == Summary(removed=1)
    assert not any(summary.is_cleared for summary in found)


def test_every_kind_of_event_counts_for_itself():
    assert read(batch()) == Summary()
    assert read(batch(STORED, STORED, REMOVED)) == Summary(4, 1)
    assert read(batch(STORED, CLEARED, {"type": "Unheard"})) == Summary(2, 0, True)


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b"\x93\x01", msgspec.msgpack.encode([1.0]), batch(3), batch({})]
)
def test_what_is_no_batch_is_refused(payload):
    with pytest.raises(BadEvents):
        read(payload)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_summary_or_a_refusal(payload):
    with contextlib.suppress(BadEvents):
        assert read(payload).stored >= 0


def test_gaps_and_new_beginnings_show_in_the_sequence():
    sequence = Sequence()
    steps = [sequence.take(n) for n in (26, 27, 30, 31, 0, 1)]
    assert steps == [Step.NEXT, Step.NEXT, Step.GAP, Step.NEXT, Step.AGAIN, Step.NEXT]
    assert number_of((2**64 - 1).to_bytes(8, "big")) == 2**64 - 1
    with pytest.raises(BadEvents):
        number_of(b"\x00")


class Publisher:
    """An engine's publisher and its replay socket."""

    def __init__(self):
        zmq = pytest.importorskip("zmq", reason="headrace[kv-events] is missing")
        self.zmq = zmq
        context = pytest.importorskip("zmq.asyncio").Context.instance()
        self.pub, self.router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self.port = self.pub.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.kept = {}
        self.asked = []
        self.task = asyncio.ensure_future(self._replay())

    async def send(self, number, *events, lost=False):
        self.kept[number] = batch(*events)
        if not lost:
            await self.pub.send_multipart([b"kv-events", number.to_bytes(8, "big"), batch(*events)])

    async def _replay(self):
        while True:
            who, _, first = await self.router.recv_multipart()
            self.asked.append(int.from_bytes(first, "big"))
            for number, payload in sorted(self.kept.items()):
                if number >= self.asked[-1]:
                    head = [who, b"", b"kv-events", number.to_bytes(8, "big")]
                    await self.router.send_multipart([*head, payload])
            await self.router.send_multipart([who, b"", b"", b"\xff" * 8, b""])

    def close(self):
        self.task.cancel()
        self.pub.close(0)
        self.router.close(0)


def listening(scenario, *, replay=True):
    """Run `scenario(publisher, member)` with a gateway that has heard event 0."""

    async def run(replica, plane):
        publisher = Publisher()
        try:
            one = await replica()
            ports = {"kv_events_port": publisher.port}
            if replay:
                ports["kv_replay_port"] = publisher.replay_port
            up = await plane({"replicas": [one.url], "control": ports})
            await until(lambda: up.state(one) == "ready")
            member = up.member(one)
            for _ in range(200):  # until the subscription has arrived
                await publisher.send(0, STORED)
                await asyncio.sleep(0.02)
                if member.kv_events["stored_blocks"]:
                    break
            await asyncio.sleep(0.1)
            await publisher.send(1, STORED)
            seen = {}
            while seen != member.kv_events:
                seen = dict(member.kv_events)
                await asyncio.sleep(0.1)
            await scenario(publisher, member)
        finally:
            publisher.close()

    play(run)


def test_a_cleared_cache_is_forgotten_and_nothing_else_is():
    async def scenario(publisher, member):
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
    async def scenario(publisher, member):
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
    async def scenario(publisher, member):
        before = member.generation
        await publisher.send(5, STORED)
        await until(lambda: member.generation == before + 1)

    listening(scenario, replay=replay)


def test_events_that_start_anew_void_what_was_known():
    async def scenario(publisher, member):
        before = member.generation
        await publisher.send(0, STORED)
        await until(lambda: member.generation == before + 1)

    listening(scenario)


def test_a_bad_message_is_counted_and_the_next_one_taken():
    async def scenario(publisher, member):
        stored = member.kv_events["stored_blocks"]
        await publisher.pub.send_multipart([b"kv-events", b"short", b""])
        await publisher.pub.send_multipart([b"one"])
        await publisher.send(2, STORED)
        await until(lambda: member.kv_events["stored_blocks"] == stored + 2)

    listening(scenario)
