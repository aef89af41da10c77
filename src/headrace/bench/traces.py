"""Recorded traffic as requests: Mooncake jsonl, Azure csv and headrace's own access log.

The form is told from the content. Times count from the first request of the file. Only Mooncake
traces say which prompts share a prefix; in the other forms every prompt is its own.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from headrace.bench.workload import Job, Request, Segment

MOONCAKE_BLOCK_TOKENS = 512
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
EXCERPT = Path(__file__).parent / "data" / "mooncake_excerpt.jsonl"

# Prompts of traces without prefixes get keys no Mooncake block id comes near.
PRIVATE_KEY_BASE = 1 << 40


class TraceError(ValueError):
    """The file is no trace of a known form; names the line."""


def read(path: Path) -> Iterator[Request]:
    """Requests of a trace file in its order, times from its first request.

    Raises TraceError for an unknown form or a broken line, OSError if the file cannot be read.
    """
    with path.open(encoding="utf-8-sig") as file:
        lines = (line for line in file if line.strip())
        first = next(lines, "")
        parse = _recognise(first)
        yield from _from_zero(parse(chain([first], lines)))


def _recognise(first_line: str) -> Callable[[Iterable[str]], Iterator[Request]]:
    if first_line.lstrip().startswith("{"):
        row = _json_row(first_line, 1)
        if "input_length" in row:
            return _mooncake
        if "time" in row:
            return _access_log
    elif first_line.strip().split(",")[:3] == list(AZURE_COLUMNS):
        return _azure
    raise TraceError(
        "line 1 is neither a Mooncake row (timestamp, input_length, output_length, hash_ids), "
        f"nor the Azure header ({','.join(AZURE_COLUMNS)}), nor an access-log row (time, …)"
    )


def _from_zero(requests: Iterator[Request]) -> Iterator[Request]:
    start_s: float | None = None
    for request in requests:
        if start_s is None:
            start_s = request.at_s
        yield Request(request.at_s - start_s, request.job)


def _mooncake(lines: Iterable[str]) -> Iterator[Request]:
    """timestamp in ms; one hash id for each block of 512 prompt tokens, the last may be shorter."""
    for number, line in enumerate(lines, 1):
        row = _json_row(line, number)
        with _Line(number):
            left = int(row["input_length"])
            prompt = []
            for key in row.get("hash_ids", ()):
                prompt.append(Segment(int(key), min(left, MOONCAKE_BLOCK_TOKENS)))
                left -= prompt[-1].tokens
            if left > 0:
                prompt.append(Segment(PRIVATE_KEY_BASE + number, left))
            job = Job(tuple(prompt), max(1, int(row["output_length"])))
            request = Request(float(row["timestamp"]) / 1000, job)
        yield request


def _azure(lines: Iterable[str]) -> Iterator[Request]:
    """TIMESTAMP,ContextTokens,GeneratedTokens."""
    for number, row in enumerate(csv.DictReader(lines), 2):
        with _Line(number):
            at_s = datetime.fromisoformat(row["TIMESTAMP"]).timestamp()
            request = Request(
                at_s, _private_job(number, int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            )
        yield request


def _access_log(lines: Iterable[str]) -> Iterator[Request]:
    """The gateway's own log, a line at the *end* of each request: sorted by arrival here."""
    found = []
    for number, line in enumerate(lines, 1):
        row = _json_row(line, number)
        with _Line(number):
            prompt_tokens = row.get("prompt_tokens") or row.get("estimated_prompt_tokens")
            if not prompt_tokens:
                continue  # refused or malformed: it never reached an engine
            job = _private_job(number, int(prompt_tokens), _logged_output_tokens(row))
            found.append(Request(float(row["time"]) - float(row.get("duration_s") or 0), job))
    yield from sorted(found, key=lambda request: request.at_s)


def _logged_output_tokens(row: dict[str, Any]) -> int:
    """What the engine told; else what the pace and the time of the stream amount to."""
    if row.get("completion_tokens") is not None:
        return int(row["completion_tokens"])
    if row.get("tpot_s") and row.get("ttft_s"):
        return 1 + round(float(row["duration_s"] - row["ttft_s"]) / float(row["tpot_s"]))
    return 1


def _private_job(number: int, prompt_tokens: int, output_tokens: int) -> Job:
    segment = Segment(PRIVATE_KEY_BASE + number, max(1, prompt_tokens))
    return Job((segment,), max(1, output_tokens))


def _json_row(line: str, number: int) -> dict[str, Any]:
    with _Line(number):
        row: dict[str, Any] = orjson.loads(line)
    if not isinstance(row, dict):
        raise TraceError(f"line {number}: no JSON object")
    return row


class _Line:
    """Turns what goes wrong in a block into a TraceError that names the line."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, (KeyError, TypeError, ValueError)):
            raise TraceError(f"line {self.number}: {error!r}") from error
