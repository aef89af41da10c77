"""The mock's HTTP side and its engine through real sockets: connections, queue, cache, numbers."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import urlsplit

import openai
import pytest
from captures import ask, chat, connect, control, parse_event
from mock_command import running_mock
from prometheus_client.parser import text_string_to_metric_families

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def url():
    with running_mock("--model", "tiny", "alias", "--speedup", "20") as mock:
        yield mock.url


@pytest.fixture
def slow_url():
    """A replica whose steps take seconds: what is sent there stays in flight."""
    with running_mock("--model", "tiny", "--speedup", "0.003") as mock:
        yield mock.url


def exchange(url, sent, patience_s=5.0):
    """Everything that comes back on one connection until it is closed or quiet."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), patience_s) as connection:
        connection.sendall(sent)
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
                connection.settimeout(0.3)
        except TimeoutError:
            pass
        return received


def eventually(condition, patience_s=5.0):
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.005)
    return found


def open_stream(url, **options):
    """A stream that has its head; the connection and the response."""
    connection = connect(url)
    body = chat(stream=True, max_tokens=200, **options)
    connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
    return connection, connection.getresponse()


def next_event(response):
    block = b""
    while not block.endswith(b"\n\n"):
        line = response.readline()
        assert line, f"the stream ended after {block!r}"
        block += line
    return parse_event(block.decode())


def status(url):
    return ask(url, "/_control").json["replicas"][0]


def metrics(url):
    page = ask(url, "/metrics").body.decode()
    return {
        (s.name, *sorted(s.labels.items())): s.value
        for family in text_string_to_metric_families(page)
        for s in family.samples
    }


def metric(url, name, **labels):
    wanted = {"engine": "0", "model_name": "tiny", **labels}
    return metrics(url)[(f"vllm:{name}", *sorted(wanted.items()))]


# connections


def test_pipelined_requests_are_answered_in_order(url):
    get = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"
    received = exchange(url, get % b"/version" + get % b"/v1/models" + get % b"/nothing")
    places = [received.index(mark) for mark in (b'"version"', b'"object":"list"', b"Not Found")]
    assert places == sorted(places)


def test_an_http_1_0_client_gets_an_unchunked_stream_and_a_close(url):
    body = b'{"model":"tiny","prompt":"a","stream":true,"max_tokens":2}'
    head = b"POST /v1/completions HTTP/1.0\r\ncontent-type: application/json\r\n"
    sent = head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    received = exchange(url, sent)
    assert b"transfer-encoding" not in received
    assert received.endswith(b"data: [DONE]\n\n")


def test_garbage_is_400_and_closes(url):
    assert exchange(url, b"NONSENSE\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_a_body_in_chunks_and_expect_100_are_understood(url):
    head = b"POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += b"transfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n"
    received = exchange(url, head + b'7\r\n{"promp\r\n9\r\nt": "a b"\r\n1\r\n}\r\n0\r\n\r\n')
    assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
    assert b'"count":1' in received


def test_what_was_tokenized_can_be_detokenized(url):
    said = "Ünïcode and \x00 zero bytes, ends oddly."
    ids = ask(url, "/tokenize", {"model": "tiny", "prompt": said}).json["tokens"]
    assert ask(url, "/detokenize", {"model": "tiny", "tokens": ids}).json == {"prompt": said}


# the official client


def test_the_openai_client_streams_completes_embeds_and_lists(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    messages = [{"role": "user", "content": "Hello"}]
    whole = client.chat.completions.create(model="tiny", messages=messages, max_tokens=7)
    assert whole.usage.completion_tokens == 7
    assert whole.choices[0].finish_reason == "length"
    stream = client.chat.completions.create(
        model="tiny",
        messages=messages,
        max_tokens=7,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == whole.choices[0].message.content
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert client.completions.create(model="alias", prompt="a").choices[0].text
    response = client.responses.create(model="tiny", input="Hello", max_output_tokens=5)
    assert response.output_text
    events = list(client.responses.create(model="tiny", input="Hello", stream=True))
    assert events[-1].type == "response.completed"
    vectors = client.embeddings.create(model="tiny", input=["a", "b", "a"]).data
    assert vectors[0].embedding == vectors[2].embedding != vectors[1].embedding
    assert sum(x * x for x in vectors[0].embedding) == pytest.approx(1.0, rel=1e-5)
    assert [model.id for model in client.models.list()] == ["tiny", "alias"]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=messages)
    client.close()


def test_without_a_limit_the_answer_ends_by_itself(url):
    first, again = (ask(url, CHAT, chat("Tell me")).json for _ in range(2))
    assert first["choices"] == again["choices"]
    assert first["choices"][0]["finish_reason"] == "stop"
    assert first["usage"]["completion_tokens"] > 1


# the engine behind it


def test_a_repeated_prompt_and_the_next_turn_are_found_in_the_cache(url):
    said = "A story about the sea, " * 40
    control(url, "restart")
    first = ask(url, CHAT, chat(said, max_tokens=64)).json
    again = ask(url, CHAT, chat(said, max_tokens=64)).json
    tokens = first["usage"]["prompt_tokens"]
    full = tokens // 16 * 16
    details = [answer["usage"]["prompt_tokens_details"] for answer in (first, again)]
    assert [d["cached_tokens"] for d in details] == [0, (tokens - 1) // 16 * 16]
    assert details[0]["created_cache_tokens"] == full
    assert metric(url, "prefix_cache_queries_total") == 2 * tokens
    assert metric(url, "prefix_cache_hits_total") == (tokens - 1) // 16 * 16
    turn = chat(said, max_tokens=1)
    answer = first["choices"][0]["message"]
    turn["messages"] += [
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": "And then?"},
    ]
    cached = ask(url, CHAT, turn).json["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert tokens + 32 < cached <= tokens + 64
    salted = ask(url, CHAT, chat(said, max_tokens=1, cache_salt="other")).json
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_the_head_of_a_stream_comes_before_its_first_token(slow_url):
    connection, response = open_stream(slow_url)
    assert response.status == 200
    assert status(slow_url)["running"] == 1
    assert metric(slow_url, "generation_tokens_total") == 0
    connection.close()


@pytest.mark.parametrize("stream", [True, False])
def test_hanging_up_frees_the_engine_at_once(slow_url, stream):
    if stream:
        connection, _ = open_stream(slow_url, n=3)
    else:
        connection = connect(slow_url)
        body = b'{"model":"tiny","prompt":"a","n":3,"max_tokens":200}'
        connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    eventually(lambda: status(slow_url)["running"] == 3)
    assert metric(slow_url, "kv_cache_usage_perc") > 0
    gone = time.monotonic()
    connection.sock.shutdown(socket.SHUT_RDWR)
    eventually(lambda: status(slow_url)["running"] == 0)
    assert time.monotonic() - gone < 1.0
    assert metric(slow_url, "kv_cache_usage_perc") == 0
    assert metric(slow_url, "request_success_total", finished_reason="abort") == 0


def test_requests_above_the_batch_wait_and_are_counted_by_reason():
    options = ("--model", "tiny", "--preset", "llama2-7b-a10", "--speedup", "0.01")
    with running_mock(*options) as mock:
        body = {"model": "tiny", "prompt": "word " * 2800, "n": 5, "max_tokens": 500}
        connection = connect(mock.url)
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
        )
        eventually(lambda: status(mock.url)["waiting"] > 0)
        waiting = metric(mock.url, "num_requests_waiting")
        running = metric(mock.url, "num_requests_running")
        assert waiting + running == 5
        assert metric(mock.url, "num_requests_waiting_by_reason", reason="capacity") == waiting
        connection.close()


def test_embeddings_are_computed_by_the_engine(url, slow_url):
    body = {"model": "tiny", "input": ["one two three", [1, 2, 3, 4, 5]]}
    answer = ask(url, "/v1/embeddings", body).json
    assert [entry["index"] for entry in answer["data"]] == [0, 1]
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == 4 + 5
    connection = connect(slow_url)
    sent = json.dumps(body)
    connection.request("POST", "/v1/embeddings", sent, {"content-type": "application/json"})
    eventually(lambda: status(slow_url)["running"] == 2)
    control(slow_url, "kill")
    assert connection.getresponse().status == 500


def test_sigterm_to_the_command_ends_streams_with_reason_abort():
    with running_mock("--model", "tiny") as mock:
        connection, response = open_stream(mock.url)
        next_event(response)
        assert mock.stop() == 0
        events = [parse_event(e) for e in response.read().decode().strip().split("\n\n")]
        assert events[-1][1] == "[DONE]"
        assert events[-2][1]["choices"][0]["finish_reason"] == "abort"
        connection.close()


def test_speedup_divides_the_time_of_a_request():
    def seconds(speedup):
        with running_mock("--model", "tiny", "--speedup", speedup) as mock:
            begin = time.monotonic()
            ask(mock.url, CHAT, chat(max_tokens=40))
            return time.monotonic() - begin

    usual = seconds("1")
    assert usual > 40 * 6.5e-3
    assert seconds("20") < usual
