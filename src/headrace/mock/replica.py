"""One fake vLLM: its routes, its state, and the requests it is working on."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from headrace.mock import asks, embeddings, text
from headrace.mock.api_errors import ApiError, bad_value, overloaded, unknown_model
from headrace.mock.asks import Ask, Body
from headrace.mock.dialects import Completions, Dialect, Usage
from headrace.mock.generation import Generation
from headrace.mock.http import Headers, HttpProtocol, Reply, Request
from headrace.mock.metrics_page import CONTENT_TYPE, MetricsPage, new_histograms
from headrace.mock.named_events import Messages, Responses
from headrace.mock.pacer import Pacer
from headrace.mock.presets import Preset

VERSION = "0.32.0"
BLOCK_TOKENS = 16
NATURAL_OUTPUT_TOKENS = (5.0, 0.6)  # log-normal: median 148 tokens where no limit is given


@dataclass(slots=True)
class Options:
    """What all replicas of one mock have in common."""

    models: list[str]
    preset: Preset
    speedup: float = 1.0
    seed: int = 0
    api_key: str | None = None
    request_id_headers: bool = False
    max_queued: int = 0  # waiting requests above which new ones are refused; 0: no limit


@dataclass(slots=True)
class Route:
    """What answers a path, for which methods."""

    methods: tuple[str, ...]
    handler: Callable[[Request, Reply], None]
    needs_key: bool = field(default=False)


class Replica:
    """One engine behind one port."""

    def __init__(self, index: int, options: Options) -> None:
        self.index = index
        self.options = options
        self.started_s = time.time()
        self.pacer = Pacer(options.preset, options.speedup)
        self.generations: set[Generation] = set()
        self.connections: set[HttpProtocol] = set()
        self.finished: Counter[str] = Counter()
        self.http_requests: Counter[tuple[str, str, str]] = Counter()
        self.histograms = new_histograms()
        self._random = random.Random(f"{options.seed}/{index}")
        self._page = MetricsPage(options.models[0], self.started_s, self._cache_config())
        self._sequences: dict[Generation, list[object]] = {}
        self._routes = self._route_table()

    def _route_table(self) -> dict[str, Route]:
        get, post = ("GET", "HEAD"), ("POST",)
        generate = self._generate
        return {
            "/health": Route(get, self._empty),
            "/ping": Route(("GET", "POST"), self._empty),
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
        }

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer one request; errors become vLLM's error bodies."""
        route = self._routes.get(request.path)
        try:
            if route is None:
                send_json(reply, {"detail": "Not Found"}, 404)
            elif request.method not in route.methods:
                allow = {"allow": ", ".join(route.methods)}
                send_json(reply, {"detail": "Method Not Allowed"}, 405, allow)
            elif route.needs_key and not self._authorized(request):
                body = b'{"error":"Unauthorized"}'
                reply.send(401, body, self.id_headers(request), vary=False)
            else:
                route.handler(request, reply)
        except ApiError as error:
            headers = self.id_headers(request) or {}
            if error.status == 503:
                headers["connection"] = "close"
            reply.send(error.status, error.body(), headers, close=error.status == 503)

    def id_headers(self, request: Request) -> Headers | None:
        """`x-request-id`, if this mock echoes it."""
        if not self.options.request_id_headers:
            return None
        return {"x-request-id": request.headers.get("x-request-id") or uuid.uuid4().hex}

    def abort(self, generation: Generation) -> None:
        """The client hung up: free what it had on the engine at once."""
        self.generations.discard(generation)
        for sequence in self._sequences.pop(generation, ()):
            self.pacer.abort(sequence)  # type: ignore[arg-type]

    def count_finish(self, reason: str) -> None:
        self.finished[reason] += 1

    def _authorized(self, request: Request) -> bool:
        key = self.options.api_key
        return key is None or request.headers.get("authorization") == f"Bearer {key}"

    def _generate(
        self, dialect_class: type[Dialect], ask_of: Callable[[Body], Ask]
    ) -> Callable[[Request, Reply], None]:
        def start(request: Request, reply: Reply) -> None:
            ask = ask_of(asks.parse_body(request))
            self._check(ask, request)
            self._start(dialect_class, ask, request, reply)

        return start

    def _check(self, ask: Ask, request: Request) -> None:
        """Refuse what a real engine refuses before it answers anything."""
        ask.model = self._served(ask.model)
        rank = request.headers.get("x-data-parallel-rank", "0")
        if rank != "0":
            raise bad_value(f"data_parallel_rank {rank} is out of range [0, 1).", None)
        limit = self.options.preset.max_model_len
        if ask.output_tokens is not None and ask.output_tokens > limit:
            said = (
                f"max_tokens={ask.output_tokens} cannot be greater than max_model_len={limit}. "
                "Please request fewer output tokens."
            )
            raise bad_value(said, "max_tokens", ask.output_tokens)
        for prompt in ask.prompts:
            if prompt.tokens > limit:
                raise too_long(limit)
        if self.options.max_queued and self.queue_depth() >= self.options.max_queued:
            raise overloaded()

    def queue_depth(self) -> int:
        return 0

    def _served(self, name: str) -> str:
        if name and name not in self.options.models:
            raise unknown_model(name, self.options.models)
        return name or self.options.models[0]

    def _start(
        self, dialect_class: type[Dialect], ask: Ask, request: Request, reply: Reply
    ) -> None:
        given_id = request.headers.get("x-request-id")
        usage = Usage(sum(prompt.tokens for prompt in ask.prompts))
        dialect = dialect_class(ask, given_id or uuid.uuid4().hex[:16], usage)
        generation = Generation(self, dialect, reply, self.id_headers(request))
        self.generations.add(generation)
        sequences: list[object] = []
        self._sequences[generation] = sequences
        for index in range(ask.sequences):
            prompt = ask.prompts[index // ask.n]
            sink = generation.token_sink(index)
            tokens = self._output_tokens(ask, prompt.tokens)
            sequences.append(self.pacer.submit(prompt.tokens, tokens, sink))

    def _output_tokens(self, ask: Ask, prompt_tokens: int) -> int:
        room = max(1, self.options.preset.max_model_len - prompt_tokens)
        wanted = ask.output_tokens
        if wanted is None:
            wanted = int(random.Random(ask.seed).lognormvariate(*NATURAL_OUTPUT_TOKENS))
        return max(1, min(wanted, room))

    def _empty(self, request: Request, reply: Reply) -> None:
        reply.send(200)

    def _models(self, request: Request, reply: Reply) -> None:
        now_s = int(time.time())
        limit = self.options.preset.max_model_len
        data = [model_card(m, self.options.models[0], now_s, limit) for m in self.options.models]
        send_json(reply, {"object": "list", "data": data})

    def _metrics(self, request: Request, reply: Reply) -> None:
        page = self._page.render(self._values(), self.histograms, self.http_requests)
        reply.send(200, page, content_type=CONTENT_TYPE)

    def _values(self) -> dict[str, float]:
        values: dict[str, float] = {
            "process_start_time_seconds": self.started_s,
            "num_requests_running": len(self.pacer.running),
            "engine_sleep_state/awake": 1,
            "prompt_tokens_total": self.pacer.prompt_tokens,
            "prompt_tokens_by_source_total/local_compute": self.pacer.prompt_tokens,
            "generation_tokens_total": self.pacer.generation_tokens,
        }
        for reason, count in self.finished.items():
            values[f"request_success_total/{reason}"] = count
        return values

    def _cache_config(self) -> dict[str, str]:
        preset = self.options.preset
        blocks = str(preset.kv_tokens // BLOCK_TOKENS)
        return {
            "block_size": str(BLOCK_TOKENS),
            "effective_attention_block_size": str(BLOCK_TOKENS),
            "num_gpu_blocks": blocks,
            "num_gpu_blocks_override": "None",
            "kv_cache_size_tokens": str(preset.kv_tokens),
            "kv_cache_max_concurrency": str(preset.kv_tokens / preset.max_model_len),
            "kv_cache_memory_bytes": "None",
            "user_specified_block_size": "False",
        }

    def _embeddings(self, request: Request, reply: Reply) -> None:
        body = asks.parse_body(request)
        model = self._served(str(body.get("model") or ""))
        send_json(reply, embeddings.answer(body, model))

    def _tokenize(self, request: Request, reply: Reply) -> None:
        body = asks.parse_body(request)
        self._served(str(body.get("model") or ""))
        if "messages" in body:
            data = asks.render_chat(asks.messages_of(body), "", body.get("tools"))
        else:
            data = str(body.get("prompt", "")).encode("utf-8", "surrogatepass")
        ids = text.encode(data)
        strings = [text.decode([i]) for i in ids] if body.get("return_token_strs") else None
        limit = self.options.preset.max_model_len
        answer = {"count": len(ids), "max_model_len": limit, "tokens": ids}
        send_json(reply, {**answer, "token_strs": strings})

    def _detokenize(self, request: Request, reply: Reply) -> None:
        body = asks.parse_body(request)
        ids = asks.messages_of(body, "tokens")
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
