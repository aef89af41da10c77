"""From request bodies to what an engine needs to know: prompt, lengths, options."""

from __future__ import annotations

import array
from dataclasses import dataclass
from typing import Any

import orjson
import xxhash

from headrace.mock import text
from headrace.mock.api_errors import ApiError, bad_value, invalid_field, wrong_content_type
from headrace.mock.http import Request

VOCABULARY = 1 << 40  # ids carry up to five bytes: see text.encode
Body = dict[str, Any]


@dataclass(slots=True)
class Prompt:
    """The bytes to hash into cache blocks, their tokens, and how many bytes a token has."""

    data: bytes
    tokens: int
    bytes_per_token: int = text.BYTES_PER_TOKEN


@dataclass(slots=True)
class Ask:
    """One generation request; `output_tokens` None means the answer ends by itself."""

    model: str
    prompts: list[Prompt]
    output_tokens: int | None
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    logprobs: bool = False
    cache_salt: str = ""
    seed: int = 0

    @property
    def cache_seed(self) -> int:
        """What the first block's hash starts from: other salts share no cache."""
        return xxhash.xxh64_intdigest(self.cache_salt.encode("utf-8", "surrogatepass"))

    @property
    def sequences(self) -> int:
        return self.n * len(self.prompts)


def parse_body(request: Request) -> Body:
    """The JSON object in the body; raises vLLM's 400 otherwise."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise wrong_content_type()
    try:
        body = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        where = f"body.{error.pos}"
        detail = (
            f"{{'type': 'json_invalid', 'loc': '{where}', 'msg': 'JSON decode error', "
            f"'input': '<dict of 0 items>', 'ctx': {{'error': {error.msg!r}}}}}"
        )
        text_ = f"1 validation error:\n  {detail}"
        raise ApiError(400, text_, "Bad Request", where) from None
    if not isinstance(body, dict):
        raise invalid_field("dict_type", "body", "Input should be a valid dictionary", body)
    return body


def content_text(content: Any) -> str:
    """The text of a message: a string, or the texts (and URLs) of its parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = []
    for part in content:
        if isinstance(part, dict):
            url = part.get("image_url")
            if isinstance(url, dict):
                url = url.get("url")
            parts.append(str(part.get("text") or url or ""))
    return "".join(parts)


def render_chat(messages: list[Any], before: str = "", tools: Any = None) -> bytes:
    """What a chat template makes of system text, tools and messages."""
    parts = [f"<|system|>{before}<|end|>"] if before else []
    if tools:
        parts.append(f"<|tools|>{orjson.dumps(tools).decode()}<|end|>")
    for message in messages:
        if isinstance(message, dict):
            said = content_text(message.get("content"))
            parts.append(f"<|{message.get('role', 'user')}|>{said}<|end|>")
    parts.append("<|assistant|>")
    return "".join(parts).encode("utf-8", "surrogatepass")


def text_prompt(data: bytes) -> Prompt:
    return Prompt(data, max(1, text.token_count(data)))


def ids_prompt(ids: list[Any]) -> Prompt:
    for token in ids:
        if not isinstance(token, int) or not 0 <= token < VOCABULARY:
            raise ApiError(400, f"Token id {token} is out of vocabulary", "BadRequestError")
    return Prompt(array.array("q", ids).tobytes(), len(ids), 8)


def prompts_of(given: Any) -> list[Prompt]:
    """The prompts of `/v1/completions` and `/v1/embeddings`: text, ids, or a list of either."""
    if isinstance(given, str):
        return [text_prompt(given.encode("utf-8", "surrogatepass"))]
    if isinstance(given, list) and given:
        if isinstance(given[0], int):
            return [ids_prompt(given)]
        return [prompts_of(item)[0] for item in given]
    raise invalid_field("string_type", "body.prompt", "Input should be a valid string", given)


def messages_of(body: Body, name: str = "messages") -> list[Any]:
    if name not in body:
        raise invalid_field("missing", f"body.{name}", "Field required", body)
    messages = body[name]
    if not isinstance(messages, list):
        place = f"body.{name}"
        raise invalid_field("list_type", place, "Input should be a valid list", messages)
    return messages


def chat_ask(body: Body) -> Ask:
    rendered = render_chat(messages_of(body), "", body.get("tools"))
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return _ask(body, [text_prompt(rendered)], limit)


def completion_ask(body: Body) -> Ask:
    if "prompt" not in body:
        raise invalid_field("missing", "body.prompt", "Field required", body)
    return _ask(body, prompts_of(body["prompt"]), body.get("max_tokens", 16))


def messages_ask(body: Body) -> Ask:
    system = content_text(body.get("system"))
    rendered = render_chat(messages_of(body), system, body.get("tools"))
    if "max_tokens" not in body:
        raise invalid_field("missing", "body.max_tokens", "Field required", body)
    return _ask(body, [text_prompt(rendered)], body["max_tokens"])


def responses_ask(body: Body) -> Ask:
    given = body.get("input")
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(messages, list):
        raise invalid_field("missing", "body.input", "Field required", body)
    rendered = render_chat(messages, str(body.get("instructions") or ""), body.get("tools"))
    return _ask(body, [text_prompt(rendered)], body.get("max_output_tokens"))


def _ask(body: Body, prompts: list[Prompt], limit: Any) -> Ask:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise bad_value(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        said = f"temperature must be non-negative, got {float(temperature)}."
        raise bad_value(said, "temperature", float(temperature))
    salt = body.get("cache_salt")
    if salt is not None and (not isinstance(salt, str) or not salt):
        said = "Parameter 'cache_salt' must be a non-empty string if provided."
        raise bad_value(said, "cache_salt")
    n = body.get("n")
    if n is not None and (not isinstance(n, int) or not 1 <= n <= 128):
        raise bad_value(f"n must be at least 1, got {n}.", "n", n)
    options = body.get("stream_options") or {}
    return Ask(
        model=str(body.get("model") or ""),
        prompts=prompts,
        output_tokens=limit,
        n=n or 1,
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        logprobs=body.get("logprobs") not in (None, False),
        cache_salt=salt or "",
        seed=xxhash.xxh64_intdigest(prompts[0].data),
    )
