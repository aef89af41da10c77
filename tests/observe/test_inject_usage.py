"""observability.inject_usage: the engine is asked for usage, the client sees what it asked for."""

import json
import socket

import pytest
from aiohttp import web
from gateway_loop import play

INJECT = {"observability": {"inject_usage": True}}
ALIASES = {**INJECT, "routing": {"model_aliases": {"short": "m"}, "prefix_table_bytes": 65536}}


async def counted(gateway):
    """Prompt and completion tokens that the gateway has counted."""
    cell = gateway.segment.model(1)
    return cell["prompt_tokens"], cell["completion_tokens"]


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"other": 1}])
def test_usage_is_asked_for_and_taken_out_again(options):
    async def scenario(gateway, engines):
        body = {} if options is None else {"stream_options": options}
        _, _, text = await gateway.chat(stream=True, max_tokens=3, **body)
        sent = engines[0].bodies[0]
        assert sent["stream_options"] == {**(options or {}), "include_usage": True}
        assert sent["max_tokens"] == 3
        assert "usage" not in text
        assert text.count("data: ") == 5 and text.endswith("data: [DONE]\n\n")
        assert await counted(gateway) == (7, 3)

    play(scenario, INJECT)


def test_a_client_that_asks_gets_its_usage_untouched():
    async def scenario(gateway, engines):
        _, _, text = await gateway.chat(stream=True, stream_options={"include_usage": True})
        assert text.count("data: ") == 6
        assert '"total_tokens": 10' in text
        assert await counted(gateway) == (7, 3)

    play(scenario, INJECT)


def test_an_aliased_request_is_asked_too():
    async def scenario(gateway, engines):
        _, _, text = await gateway.chat(stream=True, model="short")
        assert engines[0].bodies[0]["model"] == "m"
        assert engines[0].bodies[0]["stream_options"] == {"include_usage": True}
        assert "usage" not in text
        assert await counted(gateway) == (7, 3)

    play(scenario, ALIASES)


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/chat/completions", {"stream": False}),
        ("/v1/chat/completions", {}),
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/responses", {"input": "x", "stream": True}),
        ("/v1/messages", {"stream": True, "max_tokens": 3}),
        ("/v1/embeddings", {"input": "x"}),
    ],
)
def test_other_requests_are_not_changed(path, more):
    body = json.dumps({"model": "m", "messages": [], **more}).encode()

    async def scenario(gateway, engines):
        async with gateway.client.post(gateway.url + path, data=body) as answer:
            await answer.read()
        assert engines[0].bodies == [json.loads(body)]

    play(scenario, INJECT)


def test_completions_are_asked_too():
    async def scenario(gateway, engines):
        body = {"model": "m", "prompt": "x", "stream": True}
        async with gateway.client.post(f"{gateway.url}/v1/completions", json=body) as answer:
            text = await answer.text()
        assert engines[0].bodies[0]["stream_options"] == {"include_usage": True}
        assert "usage" not in text
        assert text.count("data: ") == 5

    play(scenario, INJECT)


def test_without_the_setting_nothing_is_asked():
    async def scenario(gateway, engines):
        await gateway.chat(stream=True)
        assert "stream_options" not in engines[0].bodies[0]

    play(scenario)


USAGE_EVENT = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
CONTENT_EVENT = (
    b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
)


@pytest.mark.parametrize("has_length", [True, False])
def test_what_is_no_whole_event_at_the_end_is_not_lost(has_length):
    body = CONTENT_EVENT + USAGE_EVENT + b"data: [DONE]"

    async def scenario(gateway, engines):
        async def answer(request):
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            if has_length:
                response.content_length = len(body)
            await response.prepare(request)
            await response.write(body[:100])
            await response.write(body[100:])
            return response

        engines[0].chat_with = answer
        for _ in range(2):  # nothing of the first is left in the second
            _, headers, text = await gateway.chat(stream=True)
            assert text.encode() == CONTENT_EVENT + b"data: [DONE]"
            assert "content-length" not in headers

    play(scenario, INJECT)


def test_an_http_1_0_client_is_left_alone():
    async def scenario(gateway, engines):
        body = b'{"model":"m","stream":true,"messages":[]}'
        head = b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body)
        loop = gateway.client._loop
        with socket.create_connection(("127.0.0.1", gateway.config.server.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, head + body)
            answer = b""
            while piece := await loop.sock_recv(client, 65536):
                answer += piece
        assert b" 200 " in answer and answer.endswith(b"data: [DONE]\n\n")
        assert "stream_options" not in engines[0].bodies[0]

    play(scenario, INJECT)
