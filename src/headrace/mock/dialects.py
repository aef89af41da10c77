"""How one generation is written in the OpenAI chat and completions APIs, as vLLM 0.32 does it.

A dialect object belongs to one request. `opening` are the events before any token, `first` those
that come with a choice's first token, `tokens` the event of some text of one choice (vLLM joins
tokens that wait for the same write; `Generation` gives each its own event, so that events can be
counted), `closing` what ends a good stream, `whole` the plain answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import orjson

from headrace.mock.asks import Ask

FINGERPRINT = "vllm-0.32.0-6d6f636b"
DONE = b"data: [DONE]\n\n"
Json = dict[str, Any]
dumps = orjson.dumps


@dataclass(slots=True)
class Usage:
    """Token counts of one request, over all its choices."""

    prompt_tokens: int
    cached_tokens: int = 0
    created_cache_tokens: int = 0
    completion_tokens: int = 0

    def openai(self) -> Json:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
        }

    def details(self) -> Json:
        return {
            "cached_tokens": self.cached_tokens,
            "created_cache_tokens": self.created_cache_tokens,
        }

    def whole(self) -> Json:
        details = {**self.details(), "multimodal_tokens": None}
        return {
            **self.openai(),
            "prompt_tokens_details": details,
            "completion_tokens_details": None,
        }


class Dialect:
    """The OpenAI chat API; the other dialects change what differs."""

    id_prefix = "chatcmpl-"
    chunk_object = "chat.completion.chunk"

    def __init__(self, ask: Ask, request_id: str, usage: Usage) -> None:
        self.ask = ask
        self.usage = usage
        self.id = self.id_prefix + request_id
        self.created = int(time.time())
        head = {
            "id": self.id,
            "object": self.chunk_object,
            "created": self.created,
            "model": ask.model,
        }
        # everything up to `"choices":[`, the same in each event of this request
        self._head = b"data: " + dumps(head)[:-1] + b',"choices":['

    def opening(self) -> bytes:
        return b""

    def first(self, index: int) -> bytes:
        body = (
            b'{"index":%d,"delta":{"role":"assistant","content":""},'
            b'"logprobs":null,"finish_reason":null}]' % index
        )
        tail = b',"prompt_token_ids":null,"prompt_text":null}\n\n'
        return self._head + body + self._running_usage() + tail

    def tokens(self, index: int, said: str, reason: str | None) -> bytes:
        logprobs = dumps(_chat_logprobs(said)) if self.ask.logprobs else b"null"
        ending = b"null"
        if reason is not None:
            ending = b'"%b","stop_reason":null' % reason.encode()
        body = b'{"index":%d,"delta":{"content":%b},"logprobs":%b,"finish_reason":%b,' % (
            index,
            dumps(said),
            logprobs,
            ending,
        )
        return self._head + body + b'"token_ids":null}]' + self._tail(reason)

    def closing(self, said: list[str], reasons: list[str]) -> bytes:
        if not self.ask.include_usage:
            return DONE
        usage = {**self.usage.openai(), "prompt_tokens_details": self.usage.details()}
        tail = b'],"usage":%b,"system_fingerprint":"%b"}\n\n' % (
            dumps(usage),
            FINGERPRINT.encode(),
        )
        return self._head + tail + DONE

    def whole(self, said: list[str], reasons: list[str]) -> Json:
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.ask.model,
            "choices": [self._choice(i, said[i], reasons[i]) for i in range(len(said))],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self.usage.whole(),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def _choice(self, index: int, said: str, reason: str) -> Json:
        message = {
            "role": "assistant",
            "content": said,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        return {
            "index": index,
            "message": message,
            "logprobs": _chat_logprobs(said) if self.ask.logprobs else None,
            "finish_reason": reason,
            "stop_reason": None,
            "token_ids": None,
            "routed_experts": None,
        }

    def _running_usage(self) -> bytes:
        if not (self.ask.include_usage and self.ask.continuous_usage):
            return b""
        return b',"usage":' + dumps({**self.usage.openai(), "completion_tokens_details": None})

    def _tail(self, reason: str | None) -> bytes:
        tail = self._running_usage()
        if reason is not None and not self.ask.include_usage:
            tail += b',"system_fingerprint":"%b"' % FINGERPRINT.encode()
        return tail + b"}\n\n"


class Completions(Dialect):
    """`/v1/completions`: text instead of deltas, no role event."""

    id_prefix = "cmpl-"
    chunk_object = "text_completion"

    def first(self, index: int) -> bytes:
        return b""

    def tokens(self, index: int, said: str, reason: str | None) -> bytes:
        logprobs = dumps(_text_logprobs(said)) if self.ask.logprobs else b"null"
        ending = b"null" if reason is None else b'"%b"' % reason.encode()
        body = b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b,"stop_reason":null,' % (
            index,
            dumps(said),
            logprobs,
            ending,
        )
        ids = b'"prompt_token_ids":null,"token_ids":null}]'
        return self._head + body + ids + self._tail(reason)

    def whole(self, said: list[str], reasons: list[str]) -> Json:
        answer = super().whole(said, reasons)
        for name in ("prompt_logprobs", "prompt_token_ids", "prompt_text"):
            del answer[name]
        answer["object"] = self.chunk_object
        return answer

    def _choice(self, index: int, said: str, reason: str) -> Json:
        return {
            "index": index,
            "text": said,
            "logprobs": _text_logprobs(said) if self.ask.logprobs else None,
            "finish_reason": reason,
            "stop_reason": None,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }


def _chat_logprobs(said: str) -> Json:
    def entry(token: str) -> Json:
        return {"token": token, "logprob": -1.0, "bytes": list(token.encode())}

    tokens = _split(said)
    return {"content": [{**entry(t), "top_logprobs": [entry(t)]} for t in tokens]}


def _text_logprobs(said: str) -> Json:
    tokens = _split(said)
    offsets = [sum(map(len, tokens[:i])) for i in range(len(tokens))]
    return {
        "text_offset": offsets,
        "token_logprobs": [-1.0] * len(tokens),
        "tokens": tokens,
        "top_logprobs": [{t: -1.0} for t in tokens],
    }


def _split(said: str) -> list[str]:
    return [f" {word}" for word in said.split()]
