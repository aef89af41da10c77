"""Segments as text: about one token a word, the same key always the same words."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any

import orjson

from headrace.bench.workload import Job, Segment

# Common short words, each one token (with its space) in the usual vocabularies.
WORDS = """
the of and to in is that it was for on are as with his they at be this from have or by one had not
but what all were when we there can an your which their said if do will each about how up out them
then she many some so these would other into has more her two like him see time could no make than
first been its who now people my made over did down only way find use may water long little very
after words called just where most know get through back much before go good
""".split()  # noqa: SIM905


def messages(prompt: Iterable[Segment]) -> list[dict[str, str]]:
    """Chat messages: neighbouring segments of one role become one message."""
    return [
        {"role": role, "content": " ".join(text(s.key, s.tokens) for s in segments)}
        for role, segments in groupby(prompt, key=lambda segment: segment.role)
    ]


@lru_cache(maxsize=4096)
def text(key: int, tokens: int) -> str:
    """The words of a segment; a shorter one of the same key is the beginning of the longer."""
    return " ".join(random.Random(key).choices(WORDS, k=tokens))


def chat_body(job: Job, model: str | None, *, ignore_eos: bool = True) -> bytes:
    """A streamed chat completion that asks for exactly the job's output length."""
    body: dict[str, Any] = {"messages": messages(job.prompt), "max_tokens": job.output_tokens}
    if model is not None:
        body["model"] = model
    if ignore_eos:  # known to vLLM, SGLang and others: do not stop before max_tokens
        body["ignore_eos"] = True
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    return orjson.dumps(body)
