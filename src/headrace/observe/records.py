"""Access records: what a process sends up for every finished request (csrc/record.h)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.core.balancer import REASONS
from headrace.core.segment import OUTCOME_NAMES, Segment
from headrace.endpoints import ENDPOINTS

RECORD_ACCESS = 1
_FIXED = struct.Struct("=6Qd3q3diI4H4BI")
MAX_BATCH = 4096


def named(names: tuple[str, ...], index: int) -> str:
    """A name by its number; `other` for numbers that mean nothing here."""
    return names[index] if 0 <= index < len(names) else "other"


def _seconds(ns: int) -> float | None:
    return ns / 1e9 if ns > 0 else None


def _count(value: int) -> int | None:
    return value if value >= 0 else None


def decode(
    data: bytes, models: Mapping[int, str], replicas: Mapping[int, str], policy: str
) -> dict[str, Any]:
    """One access record as a flat dict; unknown values are None. Durations in seconds.

    `models` and `replicas` name model ids and slots.
    """
    (
        end_unix_ns, duration_ns, queue_wait_ns, ttft_ns, bytes_in, bytes_out,
        estimate, prompt, completion, cached, tpot_s, matched, score, slot, _generation,
        model_id, status, reason, text_bytes, endpoint, outcome, retries, stream, limit,
    ) = _FIXED.unpack_from(data)  # fmt: skip
    text = data[_FIXED.size : _FIXED.size + text_bytes].decode("latin-1")
    request_id, _, trace = text.partition("\n")
    return {
        "time": end_unix_ns / 1e9,
        "id": request_id,
        "trace": trace or None,
        "model": models.get(model_id, "other"),
        "endpoint": named(ENDPOINTS, endpoint),
        "replica": replicas.get(slot),
        "policy": policy if slot >= 0 else None,
        "reason": named(REASONS, reason) if slot >= 0 else None,
        "matched_tokens": round(matched) if slot >= 0 else None,
        "score": score if slot >= 0 and math.isfinite(score) else None,
        "status": status,
        "outcome": named(OUTCOME_NAMES, outcome),
        "estimated_prompt_tokens": round(estimate),
        "prompt_tokens": _count(prompt),
        "completion_tokens": _count(completion),
        "cached_tokens": _count(cached),
        "max_tokens": limit or None,
        "stream": bool(stream),
        "queue_wait_s": _seconds(queue_wait_ns),
        "ttft_s": _seconds(ttft_ns),
        "tpot_s": tpot_s or None,
        "duration_s": duration_ns / 1e9,
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
        "retries": retries,
    }


def drain(segment: Segment, process: int) -> Iterator[bytes]:
    """The access records that a process has sent since the last call, at most MAX_BATCH."""
    for _ in range(MAX_BATCH):
        record = segment.pop_record(process)
        if record is None:
            return
        if record[0] == RECORD_ACCESS and len(record[1]) >= _FIXED.size:
            yield record[1]
