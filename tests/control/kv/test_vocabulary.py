"""Tokens spelled as bytes, held against the tokenizers library."""

import chat_models
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.kv.vocabulary import Vocabulary
from headrace.errors import ConfigError


@pytest.fixture(scope="module", params=["byte_level", "sentence_piece"])
def spelled(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    tokenizer = getattr(chat_models, request.param)(path)
    return tokenizer, Vocabulary(str(path)), path


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_from_its_tokens(spelled, text):
    tokenizer, vocabulary, _ = spelled
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert vocabulary.text(ids) == text.encode()


def test_special_tokens_are_spelled_as_they_are_written(spelled):
    tokenizer, vocabulary, _ = spelled
    ids = [tokenizer.token_to_id("<|im_start|>"), tokenizer.token_to_id("</s>")]
    assert vocabulary.text(ids) == b"<|im_start|></s>"


def test_a_character_may_be_cut_between_tokens(spelled):
    tokenizer, vocabulary, _ = spelled
    ids = tokenizer.encode("\U0001f980", add_special_tokens=False).ids
    assert len(ids) > 1
    assert b"".join(vocabulary.text([id]) for id in ids) == "\U0001f980".encode()


def test_a_folder_stands_for_the_file_in_it(spelled):
    _, vocabulary, path = spelled
    assert Vocabulary(str(path.parent)).text([0, 5]) == vocabulary.text([0, 5])


def test_an_id_that_does_not_exist_is_an_error(spelled):
    with pytest.raises(IndexError):
        spelled[1].text([10**9])


@pytest.mark.parametrize("content", [None, "", "{}", '{"model": 3}'])
def test_what_is_no_tokenizer_is_refused_with_its_path(tmp_path, content):
    path = tmp_path / "other.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"other\.json: no tokenizer"):
        Vocabulary(str(path))
