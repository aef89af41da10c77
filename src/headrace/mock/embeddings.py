"""`/v1/embeddings`: unit vectors that depend on the input alone."""

from __future__ import annotations

import base64
import math
import random
import time
import uuid
from array import array
from typing import Any

from headrace.mock import asks
from headrace.mock.api_errors import invalid_field

DIMENSIONS = 64


def answer(body: asks.Body, model: str) -> dict[str, Any]:
    """The answer to an embeddings request; raises vLLM's 400 for bad input."""
    if "input" not in body:
        raise invalid_field("missing", "body.input", "Field required", body)
    prompts = asks.prompts_of(body["input"])
    as_base64 = body.get("encoding_format") == "base64"
    vectors = [vector(prompt.data) for prompt in prompts]
    data = [
        {"index": i, "object": "embedding", "embedding": _encoded(v) if as_base64 else v}
        for i, v in enumerate(vectors)
    ]
    tokens = sum(prompt.tokens for prompt in prompts)
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
        "model": model,
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
