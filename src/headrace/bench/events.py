"""What a streamed chat completion says, event by event: content, usage, errors, its end."""

from __future__ import annotations

import orjson


class Events:
    """Takes the bytes of one stream as they come and keeps count.

    `error` is the first error event's code or type; `complete` means a finish reason and `[DONE]`.
    """

    def __init__(self) -> None:
        self.contents = 0  # events with text, of any choice
        self.completion_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.error: str | None = None
        self.finished = False
        self.done = False
        self._rest = b""

    @property
    def complete(self) -> bool:
        return self.finished and self.done

    def feed(self, data: bytes) -> int:
        """Take the next bytes; returns how many events with content became complete."""
        before = self.contents
        *events, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    self._take(line[5:].strip())
        return self.contents - before

    def _take(self, payload: bytes) -> None:
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            event = orjson.loads(payload)
        except orjson.JSONDecodeError:
            event = None
        if not isinstance(event, dict):
            self.error = self.error or "bad_event"
        elif error := event.get("error"):
            self.error = self.error or error_name(error)
        else:
            self._take_usage(event.get("usage"))
            self._take_choices(event.get("choices"))

    def _take_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self.completion_tokens = usage.get("completion_tokens", self.completion_tokens)
            self.prompt_tokens = usage.get("prompt_tokens", self.prompt_tokens)
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict):
                self.cached_tokens = details.get("cached_tokens", self.cached_tokens)

    def _take_choices(self, choices: object) -> None:
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") or {}
            if delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning"):
                self.contents += 1
            if choice.get("finish_reason"):
                self.finished = True


def error_name(error: object) -> str:
    """A short kind for an error object: its code, else its type, from a bounded alphabet."""
    name = (error.get("code") or error.get("type")) if isinstance(error, dict) else error
    kept = "".join(
        c for c in str(name or "error").lower().replace(" ", "_") if c.isalnum() or c in "_-"
    )
    return kept[:40] or "error"
