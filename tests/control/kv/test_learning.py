"""Templates of all kinds, learned: what is then said to be cached must be cached."""

import asyncio
import json

import pytest
from chat_models import (
    FakeEngine,
    byte_level,
    channelled,
    chatml,
    forgetful,
    late_system,
    prefilled,
    reminding,
    sentence_piece,
    trimming,
)

from headrace.control.kv.chains import Chains, Reading
from headrace.control.kv.learning import learn
from headrace.control.kv.vocabulary import Vocabulary
from headrace.core.scan import PREFIX_BLOCK_BYTES, BodyScan, prefix_root, rooted

ENGINE_BLOCK_TOKENS = 16
LONG = ("the river flows under bridges and if the water is high then it flows over. " * 5).strip()
THOUGHT = f"{LONG}\n</think>\n\n{LONG}"
# What a model generates, and what clients send back of it.
ANSWERS = {
    "plain": (LONG, LONG),
    "with reasoning": (f"<think>\n{THOUGHT}", f"<think>\n{THOUGHT}"),
    "within reasoning": (THOUGHT, THOUGHT),
    "reasoning left out": (f"<think>\n{THOUGHT}", LONG),
    "analysis left out": (f"<|channel|>analysis<|message|>{LONG}<|end|>", LONG),
    "after a space": (f" {LONG}", f" {LONG}"),
    "after an empty line": (f"\n\n{LONG}", f"\n\n{LONG}"),
}
TEMPLATES = (chatml, forgetful, prefilled, reminding, channelled, trimming, late_system)


@pytest.fixture(scope="module")
def spelled(tmp_path_factory):
    path = tmp_path_factory.mktemp("learning") / "tokenizer.json"
    return byte_level(path), Vocabulary(str(path))


class Cache:
    """An engine's, and what its events say of it."""

    def __init__(self, spelled, render):
        tokenizer, vocabulary = spelled
        self.engine = FakeEngine(tokenizer, render, ENGINE_BLOCK_TOKENS)
        template = asyncio.run(learn(self.engine.tokenize, vocabulary))
        self.chains = Chains(lambda lora, salt: (prefix_root(b"m"),))
        self.chains.reading = Reading(vocabulary, template)
        self.vocabulary = vocabulary
        self.known = set()

    def store(self, text):
        event = self.engine.store(text)
        if event is not None:
            self.known.update(self.chains.store(event).stored)

    def said_bytes(self, messages):
        """Of the contents, that a router takes to be cached."""
        keys = BodyScan(json.dumps({"messages": messages}).encode()).prefix_keys()
        blocks = [
            i + 1 for i, key in enumerate(rooted(keys, prefix_root(b"m"))) if key in self.known
        ]
        return max(blocks, default=0) * PREFIX_BLOCK_BYTES

    def cached_bytes(self, messages):
        """Of the prompt that the engine makes of them."""
        text = self.engine.template(messages)
        ids = self.engine.tokenizer.encode(text, add_special_tokens=False).ids
        return len(self.vocabulary.text(ids[: self.engine.hit_tokens(text)]))


def chat_of(cache, system, answer):
    """A chat of three turns, stored as it goes; yields it before each."""
    generated, sent = answer
    messages = [{"role": "system", "content": LONG}] if system else []
    for number in range(3):
        messages.append({"role": "user", "content": f"{number}. {LONG}"})
        yield messages
        prompt = cache.engine.template(messages)
        cache.store(prompt)
        cache.store(prompt + generated)
        messages.append({"role": "assistant", "content": sent})


@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("render", TEMPLATES)
def test_what_is_said_to_be_cached_is_cached(spelled, render, answer, system):
    cache = Cache(spelled, render)
    rounding = ENGINE_BLOCK_TOKENS * 6  # bytes of a block of the engine that is not full
    for messages in chat_of(cache, system, ANSWERS[answer]):
        assert cache.said_bytes(messages) <= cache.cached_bytes(messages) + rounding


@pytest.mark.parametrize(
    ("render", "answer", "system"),
    [
        (chatml, "plain", True),
        (chatml, "with reasoning", True),
        (forgetful, "plain", True),
        (forgetful, "reasoning left out", True),
        (prefilled, "reasoning left out", True),
        (reminding, "plain", True),
        (channelled, "analysis left out", True),
        (trimming, "plain", False),
        (late_system, "plain", False),
    ],
)
def test_what_is_cached_is_said_to_be(spelled, render, answer, system):
    cache = Cache(spelled, render)
    marks = 16  # bytes of a turn that are the template's
    for messages in chat_of(cache, system, ANSWERS[answer]):
        wanted = cache.cached_bytes(messages) - marks * len(messages) - 2 * PREFIX_BLOCK_BYTES
        assert cache.said_bytes(messages) >= wanted
    assert wanted > len(LONG)


def test_a_system_message_within_the_first_question_leaves_chats_without_one_readable(spelled):
    template = Cache(spelled, trimming).chains.reading.template
    assert [opening.role for opening in template.openings][:2] == ["user", "user"]


def test_contents_that_nothing_keeps_apart_are_no_chat(spelled):
    cache = Cache(spelled, lambda messages: "".join(m["content"] for m in messages))
    assert [o.role for o in cache.chains.reading.template.openings] == ["prompt"]
    cache.store(LONG * 2)
    assert cache.said_bytes([{"role": "user", "content": LONG * 2}]) == 0
    keys = BodyScan(json.dumps({"prompt": LONG * 2}).encode()).prefix_keys()
    assert cache.known == set(rooted(keys, prefix_root(b"m")))


def test_nothing_is_learned_from_an_engine_that_refuses_or_tokenizes_otherwise(spelled, tmp_path):
    async def refuses(asked):
        return None

    assert asyncio.run(learn(refuses, spelled[1])) is None
    other = FakeEngine(spelled[0], chatml)
    sentence_piece(tmp_path / "b.json")
    wrong = Vocabulary(str(tmp_path / "b.json"))
    assert asyncio.run(learn(other.tokenize, wrong)) is None
