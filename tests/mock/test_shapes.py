"""What the mock answers beside what a real vLLM 0.32 answered: status, headers, keys, events."""

from __future__ import annotations

import re

import pytest
from captures import Answer, ask, captured, chat, differences, kinds
from mock_command import running_mock

USAGE = {"stream_options": {"include_usage": True}}
CONTINUOUS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
COMPLETION = {"model": "tiny", "prompt": "Hello there", "max_tokens": 8}
RESPONSE = {"model": "tiny", "input": "Hello there", "max_output_tokens": 6}
TEXT = {"model": "tiny", "prompt": "Hello there"}
LONG = "word " * 4000

PLAIN = {
    "chat": ("/v1/chat/completions", chat(max_tokens=8)),
    "completions": ("/v1/completions", COMPLETION),
    "messages": ("/v1/messages", chat(max_tokens=6)),
    "responses": ("/v1/responses", RESPONSE),
    "tokenize": ("/tokenize", TEXT),
    "tokenize-chat": ("/tokenize", chat(return_token_strs=True)),
    "detokenize": ("/detokenize", {"model": "tiny", "tokens": [0x0141424344]}),
    "models": ("/v1/models", None),
    "health": ("/health", None),
    "ping": ("/ping", None),
    "version": ("/version", None),
    "load": ("/load", None),
}
STREAMS = {
    "chat-stream-nousage": ("/v1/chat/completions", chat(max_tokens=6)),
    "chat-stream-usage": ("/v1/chat/completions", chat(max_tokens=12, **USAGE)),
    "chat-stream-continuous-usage": ("/v1/chat/completions", chat(max_tokens=6, **CONTINUOUS)),
    "completions-stream-usage": ("/v1/completions", {**COMPLETION, **USAGE}),
    "messages-stream": ("/v1/messages", chat(max_tokens=6)),
    "responses-stream": ("/v1/responses", RESPONSE),
}
ERRORS = {
    "error-404-path": ("/no/such", None),
    "error-404-unknown-model": ("/v1/chat/completions", {**chat(), "model": "no-such"}),
    "error-bad-json": ("/v1/chat/completions", b'{"model": "tiny", "messages": ['),
    "error-bad-temperature": ("/v1/chat/completions", chat(temperature=-1.0)),
    "error-cache-salt-empty": ("/v1/chat/completions", chat(cache_salt="")),
    "error-max-tokens-0": ("/v1/chat/completions", chat(max_tokens=0)),
    "error-max-tokens-too-large": ("/v1/chat/completions", chat(max_tokens=5000)),
    "error-messages-wrong-type": ("/v1/chat/completions", {"model": "tiny", "messages": "x"}),
    "error-missing-messages": ("/v1/chat/completions", {"model": "tiny"}),
    "error-prompt-too-long": ("/v1/chat/completions", chat(LONG)),
    "error-prompt-too-long-stream": ("/v1/chat/completions", chat(LONG, stream=True)),
}


@pytest.fixture(scope="module")
def url():
    options = ("--model", "tiny", "--preset", "llama2-7b-a10", "--speedup", "50")
    with running_mock(*options) as mock:
        yield mock.url


def same_head(real: Answer, fake: Answer) -> None:
    assert fake.status == real.status
    assert fake.headers.keys() == real.headers.keys()
    varying = {"date", "content-length"}
    for name in real.headers.keys() - varying:
        assert fake.headers[name].lower() == real.headers[name].lower(), name


@pytest.mark.parametrize("name", PLAIN)
def test_plain_answers_have_the_real_keys(url, name):
    path, body = PLAIN[name]
    real, fake = captured(name), ask(url, path, body)
    same_head(real, fake)
    if real.body:
        assert differences(real.json, fake.json) == []
    else:
        assert fake.body == b""


@pytest.mark.parametrize("name", STREAMS)
def test_streams_have_the_real_events_in_the_real_order(url, name):
    path, body = STREAMS[name]
    real, fake = captured(name), ask(url, path, {**body, "stream": True})
    same_head(real, fake)
    real_kinds, fake_kinds = kinds(real.events), kinds(fake.events)
    assert [kind for kind, _ in fake_kinds] == [kind for kind, _ in real_kinds]
    for (event, wanted), (_, found) in zip(real_kinds, fake_kinds, strict=True):
        if wanted == "[DONE]":
            assert found == wanted
        else:
            assert differences(wanted, found, event) == []


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_the_real_ones_say(url, name):
    path, body = ERRORS[name]
    real, fake = captured(name), ask(url, path, body)
    same_head(real, fake)
    assert differences(real.json, fake.json) == []
    if "error" in real.json:
        wanted, found = real.json["error"], fake.json["error"]
        assert (found["type"], found["code"]) == (wanted["type"], wanted["code"])
        assert without_numbers(found["param"]) == without_numbers(wanted["param"])
    if name != "error-bad-json":  # that one quotes the parser
        assert without_numbers(fake.body.decode()) == without_numbers(real.body.decode())


def without_numbers(said):
    return said and re.sub(r"\d+", "N", said)


def test_a_wrong_content_type_is_400(url):
    fake = ask(url, "/v1/chat/completions", b"{}", {"content-type": "text/plain"})
    assert fake.json == captured("error-wrong-content-type").json


def test_a_wrong_method_is_405_with_allow(url):
    real, fake = captured("error-405-method"), ask(url, "/v1/chat/completions")
    same_head(real, fake)
    assert fake.body == real.body


def test_a_data_parallel_rank_that_does_not_exist_is_400(url):
    fake = ask(url, "/v1/chat/completions", chat(), {"x-data-parallel-rank": "3"})
    assert fake.body == captured("error-dp-rank-out-of-range").body


def test_two_choices_have_two_roles_two_finish_reasons_and_one_usage(url):
    body = chat(n=2, max_tokens=4, stream=True, logprobs=True, **USAGE)
    real, fake = captured("chat-stream-n2-logprobs"), ask(url, "/v1/chat/completions", body)
    for answer in (real, fake):
        chunks = [data for _, data in answer.events[:-1]]
        choices = [chunk["choices"][0] for chunk in chunks[:-1]]
        roles = [c["index"] for c in choices if "role" in c["delta"]]
        ends = [c["index"] for c in choices if c["finish_reason"]]
        assert sorted(roles) == sorted(ends) == [0, 1]
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] == 8
    assert differences(first_content(real), first_content(fake)) == []


def first_content(answer):
    chunks = [data for _, data in answer.events if data != "[DONE]"]
    return next(c for c in chunks if c["choices"][0]["delta"].get("content"))


def test_the_request_id_becomes_the_id_of_the_answer_but_is_not_echoed(url):
    answer = ask(url, "/v1/chat/completions", chat(max_tokens=2), {"X-Request-Id": "my-req-1"})
    assert answer.json["id"] == captured("x-request-id-default").json["id"] == "chatcmpl-my-req-1"
    assert "x-request-id" not in answer.headers


def test_with_the_option_request_ids_are_echoed_or_made_and_a_key_is_wanted():
    options = ("--model", "tiny", "--enable-request-id-headers", "--api-key", "secret")
    key = {"authorization": "Bearer secret"}
    with running_mock(*options, "--speedup", "50") as mock:
        body = chat(max_tokens=2)
        named = {**key, "x-request-id": "my-req-1"}
        same_head(
            captured("x-request-id-enabled"), ask(mock.url, "/v1/chat/completions", body, named)
        )
        made = ask(mock.url, "/v1/chat/completions", body, key).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", made)
        real, fake = captured("error-401-no-key"), ask(mock.url, "/v1/chat/completions", body)
        assert fake.body == real.body
        assert fake.headers.keys() == real.headers.keys()
        assert ask(mock.url, "/health").status == 200
