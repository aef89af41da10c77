"""`/v1/embeddings`: unit vectors that depend on the input alone."""

from __future__ import annotations

import base64
import math
import random
import time
import uuid
from array import array
from collections.abc import Callable
from typing import Any

import orjson

from headrace.mock import asks
from headrace.mock.api_errors import ApiError, invalid_field, shutting_down
from headrace.mock.engine_driver import Sequence
from headrace.mock.http import Reply

DIMENSIONS = 64


class Embeddings:
    """One embeddings request on one replica: done when each input has been read.

    It stands beside `Generation` in the replica's set of open requests.
    """

    def __init__(self, body: asks.Body, model: str, reply: Reply) -> None:
        if "input" not in body:
            raise invalid_field("missing", "body.input", "Field required", body)
        self.prompts = asks.prompts_of(body["input"])
        self.sequences: list[Sequence] = []
        self.on_end: Callable[[Embeddings], None] = lambda _: None
        self._as_base64 = body.get("encoding_format") == "base64"
        self._model = model
        self._reply = reply
        self._left = len(self.prompts)

    def scheduled(self, index: int, cached_tokens: int) -> None:
        """Nothing of this is in the answer."""

    def tokens(self, index: int, count: int, last: bool) -> None:
        """The engine's only token for an input: it has been read."""
        self._left -= 1
        if not self._left:
            self.on_end(self)
            self._reply.send(200, orjson.dumps(self._answer()))

    def end_by_replica(self) -> None:
        self.fail(shutting_down())

    def fail(self, error: ApiError) -> None:
        self.on_end(self)
        self._reply.send(error.status, error.body())

    def _answer(self) -> dict[str, Any]:
        vectors = [vector(prompt.data) for prompt in self.prompts]
        data = [
            {"index": i, "object": "embedding", "embedding": _encoded(v) if self._as_base64 else v}
            for i, v in enumerate(vectors)
        ]
        tokens = sum(prompt.tokens for prompt in self.prompts)
        usage = {
            "prompt_tokens": tokens,
            "total_tokens": tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        }
        return {
            "id": f"embd-{uuid.uuid4().hex[:16]}",
            "object": "list",
            "created": int(time.time()),
            "model": self._model,
            "data": data,
            "usage": usage,
        }


def vector(data: bytes) -> list[float]:
    """A vector of length 1 drawn from a generator that `data` seeds."""
    source = random.Random(data)
    values = [source.gauss(0.0, 1.0) for _ in range(DIMENSIONS)]
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def _encoded(values: list[float]) -> str:
    return base64.b64encode(array("f", values).tobytes()).decode()
