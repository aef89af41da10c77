"""Events of engines that tokenize, held against the keys that the scanner gives for the chats."""

import asyncio
import json

import chat_models
import pytest
from chat_models import FakeEngine, bracketed, chatml
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.kv import chains as chains_module
from headrace.control.kv.chains import Chains, Reading
from headrace.control.kv.events import Removed, Stored
from headrace.control.kv.learning import learn
from headrace.control.kv.vocabulary import Vocabulary
from headrace.core.scan import BodyScan, prefix_root, rooted

ROLES = ("user", "assistant")
LONG = "the river flows under bridges and if the water is high then it flows over them. "
words = st.text("abc dfx<|[/\néß🙂", min_size=1, max_size=700).filter(str.strip)
contents = st.lists(words, min_size=1, max_size=5)


@pytest.fixture(scope="module", params=["byte_level", "sentence_piece"])
def tokenizer(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    return getattr(chat_models, request.param)(path), Vocabulary(str(path))


def engine_and_chains(tokenizer, render, names=("m",)):
    engine = FakeEngine(tokenizer[0], render)
    template = asyncio.run(learn(engine.tokenize, tokenizer[1]))

    def roots(lora, salt):
        return tuple(prefix_root(name.encode(), None, salt) for name in ([lora] if lora else names))

    chains = Chains(roots)
    chains.reading = Reading(tokenizer[1], template)
    return engine, chains


def chat(texts, system=None):
    said = [{"role": ROLES[i % 2], "content": text} for i, text in enumerate(texts)]
    return ([{"role": "system", "content": system}] if system else []) + said


def asked(model="m", salt=None, **body):
    keys = BodyScan(json.dumps(body).encode()).prefix_keys()
    return rooted(keys, prefix_root(model.encode(), None, salt))


@pytest.mark.parametrize(
    ("render", "system"), [(chatml, None), (chatml, "Be brief. " * 40), (bracketed, None)]
)
@given(texts=contents)
def test_a_chat_that_was_stored_is_found_by_its_next_turn(tokenizer, render, system, texts):
    engine, chains = engine_and_chains(tokenizer, render)
    messages = chat(texts, system)
    change = chains.store(engine.store(render(messages)))
    wanted = asked(messages=messages)
    # What follows the last whole block, and what may begin an ending, is not known yet.
    assert change.stored[: len(wanted)] == wanted[: len(change.stored)]
    assert len(change.stored) >= len(wanted) - 1
    assert chains.unread_blocks == 0


def test_a_chat_grows_by_what_is_new_and_answers_count(tokenizer):
    engine, chains = engine_and_chains(tokenizer, chatml)
    texts = [LONG * 5]
    found = chains.store(engine.store(chatml(chat(texts)))).stored
    for text in (LONG * 7, LONG * 3, LONG * 6, LONG * 4):
        texts.append(text)
        whole = chatml(chat(texts), generate=len(texts) % 2)
        found += chains.store(engine.store(whole)).stored
    wanted = asked(messages=chat(texts))
    assert found == wanted[: len(found)]
    assert len(found) >= len(wanted) - 1
    assert chains.unread_blocks == 0


def test_a_plain_prompt_is_found(tokenizer):
    engine, chains = engine_and_chains(tokenizer, bracketed)
    text = LONG * 20
    found = chains.store(engine.store(text)).stored
    assert found == asked(prompt=text)[: len(found)]
    assert len(found) > 5


def test_every_name_of_a_model_adapters_and_salts_have_keys_of_their_own(tokenizer):
    engine, chains = engine_and_chains(tokenizer, chatml, names=("m", "alias"))
    messages = chat([LONG * 10])
    text = chatml(messages)

    def known(**more):
        return set(chains.store(engine.store(text, **more)).stored)

    plain = known()
    first = asked(messages=messages)[0]
    assert first in plain
    assert asked("alias", messages=messages)[0] in plain
    adapted = known(lora_name="sql", extra_keys=[["sql"]] * 400)
    assert asked("sql", messages=messages)[0] in adapted
    assert not adapted & plain
    salted = known(extra_keys=[["tenant"]] + [None] * 400)
    assert asked(salt=b"tenant", messages=messages)[0] in salted
    assert not salted & plain
    assert not known(lora_id=1)  # an older release: no names of adapters
    with_image = known(extra_keys=[["0f00ba"] * 2] + [None] * 400)
    assert not with_image


def test_removal_takes_what_was_stored_and_nothing_else(tokenizer):
    engine, chains = engine_and_chains(tokenizer, chatml)
    first = engine.store(chatml(chat([LONG * 12, LONG * 3])))
    second = engine.store(chatml(chat([LONG * 12, LONG * 3 + "but", LONG])))
    shared = chains.store(first).stored
    more = chains.store(second).stored
    assert shared and more
    gone = []
    for name in reversed(second.block_hashes):
        gone += chains.remove(Removed([name])).removed
    assert sorted(gone) == sorted(more)
    for name in reversed(first.block_hashes):
        gone += chains.remove(Removed([name])).removed
    assert sorted(gone) == sorted(shared + more)
    assert len(chains) == 0
    assert chains.remove(Removed([1, b"never"])).removed == []


def test_a_block_with_copies_stays_until_the_last_one_goes(tokenizer):
    engine, chains = engine_and_chains(tokenizer, chatml)
    event = engine.store(chatml(chat([LONG * 8])))
    keys = chains.store(event).stored
    assert chains.store(event).stored == keys
    assert chains.remove(Removed(event.block_hashes)).removed == []
    assert sorted(chains.remove(Removed(event.block_hashes)).removed) == sorted(keys)
    chains.store(event)
    chains.store(event)
    told = Removed(event.block_hashes, remaining_copy_counts=[0] * len(event.block_hashes))
    assert sorted(chains.remove(told).removed) == sorted(keys)


def test_a_text_cut_into_tokens_in_two_ways_goes_with_the_last(tokenizer):
    _, chains = engine_and_chains(tokenizer, chatml)
    text = chatml(chat([LONG * 8]))
    ids = tokenizer[0].encode(text, add_special_tokens=False).ids
    one = Stored([1], token_ids=ids, block_size=len(ids))
    two = Stored([2, 3], token_ids=ids, block_size=len(ids) // 2)
    keys = chains.store(one).stored
    assert chains.store(two).stored == keys
    assert chains.remove(Removed([1])).removed == []
    assert sorted(chains.remove(Removed([2, 3])).removed) == sorted(keys)


@pytest.mark.parametrize(
    "event",
    [
        Stored([5], parent_block_hash=404, token_ids=[1, 2], block_size=2),  # before we listened
        Stored([5], token_ids=[10**9], block_size=1),  # of another tokenizer
        Stored([5], token_ids=[], block_size=4),
        Stored([], block_size=16),
    ],
)
def test_blocks_that_cannot_be_read_count_and_have_no_keys(tokenizer, event):
    _, chains = engine_and_chains(tokenizer, chatml)
    change = chains.store(event)
    assert change.stored == []
    assert change.tokens == len(event.block_hashes) * event.block_size
    child = Stored([6], parent_block_hash=5, token_ids=[7], block_size=1)
    assert chains.store(child).stored == []


def test_without_a_reading_blocks_are_only_counted(tokenizer):
    engine, chains = engine_and_chains(tokenizer, chatml)
    chains.reading = None
    event = engine.store(chatml(chat([LONG * 8])))
    change = chains.store(event)
    assert (change.stored, change.tokens) == ([], 4 * len(event.block_hashes))
    assert chains.unread_blocks == len(event.block_hashes)


NAMES = st.integers(0, 6)
EVENTS = st.lists(
    st.one_of(
        st.builds(
            Stored,
            st.lists(NAMES, max_size=3),
            st.none() | NAMES,
            st.lists(st.integers(0, 500), max_size=12),
            st.integers(1, 200),
            extra_keys=st.none()
            | st.lists(st.none() | st.lists(st.text(max_size=2) | st.integers(), max_size=2)),
            lora_name=st.none() | st.text(max_size=2),
        ),
        st.builds(
            Removed,
            st.lists(NAMES, max_size=4),
            remaining_copy_counts=st.none() | st.lists(st.integers(-1, 2), max_size=4),
        ),
    ),
    max_size=12,
)


@given(EVENTS)
def test_any_events_are_taken_and_leave_nothing_behind(tokenizer, events):
    _, chains = engine_and_chains(tokenizer, chatml)
    resident = set()
    for event in events:
        change = chains.store(event) if isinstance(event, Stored) else chains.remove(event)
        resident |= set(change.stored)
        assert resident >= set(change.removed)
        resident -= set(change.removed)
    resident -= set(chains.remove(Removed(list(range(7)), None, None, [0] * 7)).removed)
    assert not resident
    assert len(chains) == 0


def test_what_is_known_of_a_replica_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(chains_module, "MAX_BLOCKS", 3)
    engine, chains = engine_and_chains(tokenizer, chatml)
    event = engine.store(chatml(chat([LONG * 8])))
    assert chains.store(event).tokens == 4 * len(event.block_hashes)
    assert len(chains) == 3
    chains.clear()
    assert len(chains) == 0
