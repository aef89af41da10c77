"""The APIs with named events and no `[DONE]`: `/v1/messages` and `/v1/responses`."""

from __future__ import annotations

from headrace.mock.asks import Ask
from headrace.mock.dialects import Dialect, Json, Usage, dumps


class Messages(Dialect):
    """`/v1/messages`: named events, no `[DONE]`."""

    stop_reasons = {"length": "max_tokens", "stop": "end_turn"}

    def opening(self) -> bytes:
        return b""

    def first(self, index: int) -> bytes:
        message: Json = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self.ask.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": self.usage.prompt_tokens, "output_tokens": 0},
        }
        block = {"content_block": {"type": "text", "text": ""}, "index": 0}
        start = _named("message_start", {"message": message})
        return start + _named("content_block_start", block)

    def tokens(self, index: int, said: str, reason: str | None) -> bytes:
        delta = {"delta": {"type": "text_delta", "text": said}, "index": 0}
        return _named("content_block_delta", delta)

    def closing(self, said: list[str], reasons: list[str]) -> bytes:
        reason = self.stop_reasons.get(reasons[0], reasons[0])
        delta = {
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": self._tokens(),
        }
        return (
            _named("content_block_stop", {"index": 0})
            + _named("message_delta", delta)
            + _named("message_stop", {})
        )

    def whole(self, said: list[str], reasons: list[str]) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": said[0]}],
            "model": self.ask.model,
            "stop_reason": self.stop_reasons.get(reasons[0], reasons[0]),
            "usage": self._tokens(),
        }

    def _tokens(self) -> Json:
        return {
            "input_tokens": self.usage.prompt_tokens,
            "output_tokens": self.usage.completion_tokens,
        }


class Responses(Dialect):
    """`/v1/responses`: numbered and named events, no `[DONE]`."""

    id_prefix = "resp_"

    def __init__(self, ask: Ask, request_id: str, usage: Usage) -> None:
        super().__init__(ask, request_id, usage)
        self._number = -1
        self._item_id = f"msg_{request_id}"

    def opening(self) -> bytes:
        running = self._response("in_progress", [], None)
        return self._numbered("response.created", {"response": running}) + self._numbered(
            "response.in_progress", {"response": running}
        )

    def first(self, index: int) -> bytes:
        part: Json = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        item = {**self._item(""), "content": [], "status": "in_progress"}
        added = self._numbered("response.output_item.added", {"item": item, "output_index": 0})
        return added + self._numbered(
            "response.content_part.added", {"content_index": 0, **self._where(), "part": part}
        )

    def tokens(self, index: int, said: str, reason: str | None) -> bytes:
        delta = {"content_index": 0, "delta": said, **self._where(), "logprobs": []}
        return self._numbered("response.output_text.delta", delta)

    def closing(self, said: list[str], reasons: list[str]) -> bytes:
        item = self._item(said[0])
        done = {"content_index": 0, **self._where(), "logprobs": [], "text": said[0]}
        part = {"content_index": 0, **self._where(), "part": item["content"][0]}
        whole = self.whole(said, reasons)
        return (
            self._numbered("response.output_text.done", done)
            + self._numbered("response.content_part.done", part)
            + self._numbered("response.output_item.done", {"item": item, "output_index": 0})
            + self._numbered("response.completed", {"response": whole})
        )

    def whole(self, said: list[str], reasons: list[str]) -> Json:
        status = "completed" if reasons[0] == "stop" else "incomplete"
        answer = self._response(status, [self._item(said[0])], self._tokens())
        if status == "incomplete":
            answer["incomplete_details"] = {"reason": "max_output_tokens"}
        return answer

    def _where(self) -> Json:
        return {"item_id": self._item_id, "output_index": 0}

    def _item(self, said: str) -> Json:
        part: Json = {"annotations": [], "text": said, "type": "output_text", "logprobs": None}
        return {
            "id": self._item_id,
            "content": [part],
            "role": "assistant",
            "status": "completed",
            "type": "message",
            "phase": None,
        }

    def _tokens(self) -> Json:
        return {
            "input_tokens": self.usage.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": self.usage.cached_tokens,
                "cache_write_tokens": self.usage.created_cache_tokens,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": self.usage.completion_tokens,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": self.usage.prompt_tokens + self.usage.completion_tokens,
        }

    def _response(self, status: str, output: list[Json], usage: Json | None) -> Json:
        answer: Json = {
            "id": self.id,
            "created_at": self.created,
            "model": self.ask.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": self.ask.output_tokens,
            "service_tier": "auto",
            "status": status,
            "truncation": "disabled",
            "usage": usage,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }
        return {**answer, **dict.fromkeys(_EMPTY_RESPONSE_FIELDS)}

    def _numbered(self, name: str, body: Json) -> bytes:
        self._number += 1
        return _named(name, {**body, "sequence_number": self._number}, type_last=True)


_EMPTY_RESPONSE_FIELDS = (
    "incomplete_details",
    "instructions",
    "metadata",
    "max_tool_calls",
    "previous_response_id",
    "prompt",
    "reasoning",
    "text",
    "top_logprobs",
    "user",
    "kv_transfer_params",
    "ec_transfer_params",
    "input_messages",
    "output_messages",
)


def _named(name: str, body: Json, type_last: bool = False) -> bytes:
    body = {**body, "type": name} if type_last else {"type": name, **body}
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps(body))
