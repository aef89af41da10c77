"""Keys of a prompt in pieces, held against the scanner that sees it whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.promptkeys import PromptKeys
from headrace.core.scan import BodyScan, prefix_root, rooted

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=900)
turns = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), max_size=6)


def scanned(**body):
    return BodyScan(json.dumps(body).encode()).prefix_keys()


def pieces(data, text):
    """The text, cut where hypothesis likes."""
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    return [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


@given(st.data(), turns)
def test_a_chat_in_pieces_gives_the_keys_of_the_whole(data, chat):
    keys, found = PromptKeys(), []
    keys.begin_chat()
    for role, text in chat:
        keys.begin_turn(role.encode())
        for piece in pieces(data, text):
            keys.add(piece)
            found += keys.take()
            keys = PromptKeys(keys.state)
    found += keys.take()
    assert found == scanned(messages=[{"role": r, "content": c} for r, c in chat])


@given(st.data(), texts)
def test_a_prompt_in_pieces_gives_the_keys_of_the_whole(data, text):
    keys, found = PromptKeys(), []
    keys.begin_prompt()
    for piece in pieces(data, text):
        keys.add(piece)
        found += keys.take()
        keys = PromptKeys(keys.state)
    assert found == scanned(prompt=text)


def test_no_more_keys_than_a_prompt_may_have():
    text = "long " * 40_000
    keys = PromptKeys()
    keys.begin_prompt()
    keys.add(text.encode())
    assert keys.take() == scanned(prompt=text)
    assert keys.take() == []
    again = PromptKeys(keys.state)
    again.add(b"more" * 1000)
    assert again.take() == []


@pytest.mark.parametrize("state", [b"", b"x" * 15, b"x" * 272, b"\xff" * 16])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(ValueError, match="state"):
        PromptKeys(state)


def test_keys_with_a_root_differ_by_model():
    assert rooted([1, 2], prefix_root(b"a")) != rooted([1, 2], prefix_root(b"b"))
    assert rooted([], 7) == []
