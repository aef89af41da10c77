"""Segments as text: about one token a word, the same key always the same words."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any

import orjson

from headrace.bench.workload import Job, Segment

# Three letters and a space: one token in the usual vocabularies, and four bytes, which is one token
# for `headrace mock`. A prompt is then as long as the workload says, whoever counts.
WORDS = """
the and for are but not you all any can had her was one our out day get has him his how man new now
old see two way who boy did its let put say she too use dad mom act add age ago air arm art ask bad
bag bar bed big bit box bus buy car cat cup cut dog dry due ear eat end eye far few fit fly fun gas
got guy hit hot ice job key kid law lay led leg lie lot low map may men mix net nor off oil own pay
per pop red run sad sat sea set sit six sky son sun tax tea ten tie tip top try via war wet why win
yes yet
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
