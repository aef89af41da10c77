"""The HTTP routes of one fake vLLM."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from headrace.mock import asks, text
from headrace.mock.api_errors import (
    ApiError,
    bad_value,
    engine_dead,
    overloaded,
    shutting_down,
    unknown_model,
)
from headrace.mock.asks import Ask, Body, Prompt
from headrace.mock.dialects import Completions, Dialect, Usage
from headrace.mock.embeddings import Embeddings
from headrace.mock.generation import Generation
from headrace.mock.http import Handler, Headers, Reply, Request
from headrace.mock.metrics_page import CONTENT_TYPE
from headrace.mock.named_events import Messages, Responses
from headrace.mock.options import BLOCK_TOKENS
from headrace.mock.replica import Replica, State

VERSION = "0.32.0"


@dataclass(slots=True)
class Route:
    """What answers a path, for which methods."""

    methods: tuple[str, ...]
    handler: Handler
    needs_key: bool = False


class Api:
    """Answers the requests of one replica; `control` answers those to `/_control`."""

    def __init__(self, replica: Replica, control: Handler) -> None:
        self._replica = replica
        self._options = replica.options
        get, post = ("GET", "HEAD"), ("POST",)
        generate = self._generate
        self._routes = {
            "/health": Route(get, self._health),
            "/ping": Route(("GET", "POST"), self._health),
            "/version": Route(get, lambda _, reply: send_json(reply, {"version": VERSION})),
            "/load": Route(get, lambda _, reply: send_json(reply, {"server_load": 0})),
            "/metrics": Route(get, self._metrics),
            "/v1/models": Route(get, self._models, True),
            "/v1/chat/completions": Route(post, generate(Dialect, asks.chat_ask), True),
            "/v1/completions": Route(post, generate(Completions, asks.completion_ask), True),
            "/v1/responses": Route(post, generate(Responses, asks.responses_ask), True),
            "/v1/messages": Route(post, generate(Messages, asks.messages_ask), True),
            "/v1/embeddings": Route(post, self._embeddings, True),
            "/tokenize": Route(post, self._tokenize),
            "/detokenize": Route(post, self._detokenize),
            "/_control": Route(("GET", "POST"), control),
        }

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer one request; errors become vLLM's error bodies."""
        route = self._routes.get(request.path)
        headers = self._id_headers(request)
        try:
            if route is None:
                send_json(reply, {"detail": "Not Found"}, 404, headers)
            elif request.method not in route.methods:
                allow = {"allow": ", ".join(route.methods), **headers}
                send_json(reply, {"detail": "Method Not Allowed"}, 405, allow)
            elif route.needs_key and not self._authorized(request):
                reply.send(401, b'{"error":"Unauthorized"}', headers, vary=False)
            else:
                route.handler(request, reply)
        except ApiError as error:
            busy = error.status == 503
            if busy:
                headers = {**headers, "connection": "close"}
            leaving = self._replica.state is State.STOPPING and error.status == 500
            close = busy or leaving
            reply.send(error.status, error.body(), headers, vary=not leaving, close=close)

    def _id_headers(self, request: Request) -> Headers:
        """`x-request-id`, if this mock echoes it."""
        if not self._options.request_id_headers:
            return {}
        return {"x-request-id": request.headers.get("x-request-id") or uuid.uuid4().hex}

    def _authorized(self, request: Request) -> bool:
        key = self._options.api_key
        return key is None or request.headers.get("authorization") == f"Bearer {key}"

    # generation

    def _generate(self, dialect_class: type[Dialect], ask_of: Callable[[Body], Ask]) -> Handler:
        def start(request: Request, reply: Reply) -> None:
            ask = ask_of(asks.parse_body(request))
            self._check(ask, request)
            given_id = request.headers.get("x-request-id")
            usage = Usage(sum(prompt.tokens for prompt in ask.prompts))
            dialect = dialect_class(ask, given_id or uuid.uuid4().hex[:16], usage)
            headers = self._id_headers(request)
            if ask.stream and self._replica.queue_is_full():
                self._replica.refused += 1
                Generation(self._replica, dialect, reply, headers).fail(overloaded())
            else:
                self._replica.generate(dialect, reply, headers)

        return start

    def _check(self, ask: Ask, request: Request) -> None:
        """Refuse what a real engine refuses before it answers anything."""
        ask.model = self._served(ask.model)
        rank = request.headers.get("x-data-parallel-rank", "0")
        if rank != "0":
            raise bad_value(f"data_parallel_rank {rank} is out of range [0, 1).", None)
        limit = self._options.preset.max_model_len
        if ask.output_tokens is not None and ask.output_tokens > limit:
            said = (
                f"max_tokens={ask.output_tokens} cannot be greater than max_model_len={limit}. "
                "Please request fewer output tokens."
            )
            raise bad_value(said, "max_tokens", ask.output_tokens)
        self._check_prompts(ask.prompts)
        self._check_state()
        replica = self._replica
        if replica.queue_is_full() and not (ask.stream and replica.refuse_after_head):
            replica.refused += 1
            raise overloaded()

    def _check_prompts(self, prompts: list[Prompt]) -> None:
        preset = self._options.preset
        room = min(preset.max_model_len, preset.kv_tokens - 4 * BLOCK_TOKENS)
        if any(prompt.tokens >= room for prompt in prompts):
            raise too_long(preset.max_model_len)

    def _check_state(self) -> None:
        if self._replica.state is State.STOPPING:
            raise shutting_down()
        if self._replica.state is not State.UP:
            raise engine_dead()

    def _served(self, name: str) -> str:
        if name and name not in self._replica.models:
            raise unknown_model(name, self._replica.models)
        return name or self._replica.models[0]

    # the rest

    def _health(self, request: Request, reply: Reply) -> None:
        reply.send(503 if self._replica.state is State.DEAD else 200)

    def _models(self, request: Request, reply: Reply) -> None:
        now_s = int(time.time())
        limit = self._options.preset.max_model_len
        root = self._options.models[0]
        data = [model_card(name, root, now_s, limit) for name in self._replica.models]
        send_json(reply, {"object": "list", "data": data})

    def _metrics(self, request: Request, reply: Reply) -> None:
        reply.send(200, self._replica.page(), content_type=CONTENT_TYPE)

    def _embeddings(self, request: Request, reply: Reply) -> None:
        body = asks.parse_body(request)
        model = self._served(str(body.get("model") or ""))
        embeddings = Embeddings(body, model, reply)
        self._check_prompts(embeddings.prompts)
        self._check_state()
        self._replica.embed(embeddings, reply)

    def _tokenize(self, request: Request, reply: Reply) -> None:
        body = asks.parse_body(request)
        self._served(str(body.get("model") or ""))
        if "messages" in body:
            data = asks.render_chat(asks.messages_of(body), "", body.get("tools"))
        else:
            data = str(body.get("prompt", "")).encode("utf-8", "surrogatepass")
        ids = text.encode(data)
        strings = [text.decode([i]) for i in ids] if body.get("return_token_strs") else None
        limit = self._options.preset.max_model_len
        answer = {"count": len(ids), "max_model_len": limit, "tokens": ids}
        send_json(reply, {**answer, "token_strs": strings})

    def _detokenize(self, request: Request, reply: Reply) -> None:
        ids = asks.messages_of(asks.parse_body(request), "tokens")
        asks.ids_prompt(ids)
        send_json(reply, {"prompt": text.decode(ids)})


def send_json(
    reply: Reply, answer: object, status: int = 200, headers: Headers | None = None
) -> None:
    reply.send(status, orjson.dumps(answer), headers)


def too_long(limit: int) -> ApiError:
    said = (
        f"This model's maximum context length is {limit} tokens. However, your prompt contains "
        f"at least {limit + 1} input tokens, which exceeds this limit even without any output "
        "tokens. Please reduce the length of the input prompt."
    )
    return bad_value(said, "input_tokens", limit + 1)


def model_card(name: str, root: str, now_s: int, max_model_len: int) -> dict[str, object]:
    """One entry of `/v1/models`."""
    permission = {
        "id": f"modelperm-{uuid.uuid4().hex[:16]}",
        "object": "model_permission",
        "created": now_s,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": now_s,
        "owned_by": "vllm",
        "root": root,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
