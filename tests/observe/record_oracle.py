"""Access records in plain Python: packed, put into a ring, and as what their lines say."""

from __future__ import annotations

import math
import mmap
import struct

from headrace.core.lease import REASONS
from headrace.core.segment import OUTCOME_NAMES
from headrace.endpoints import ENDPOINTS
from headrace.observe.records import named

FIELDS = (
    *("end_unix_ns", "duration_ns", "queue_wait_ns", "ttft_ns", "bytes_in", "bytes_out"),
    *("estimated_prompt_tokens", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("tpot_s", "matched_tokens", "score", "slot", "generation"),
    *("model", "status", "reason", "text_bytes"),
    *("endpoint", "outcome", "retries", "stream", "output_limit"),
)
FIXED = struct.Struct("=6Qd3q3diI4H4BI")
RECORD_ACCESS = 1
RING_BYTES = 1 << 20
HEAD_AT, TAIL_AT, DATA_AT = 0, 64, 128  # in a ring


def packed(record: dict, text: bytes) -> bytes:
    """A record as a process packs it."""
    values = {**record, "text_bytes": len(text)}
    return FIXED.pack(*(values[name] for name in FIELDS)) + text


def push(segment, data: bytes, *, process: int = 0, kind: int = RECORD_ACCESS) -> None:
    """Put a record into a process's ring; it must have room."""
    at, _ = segment.layout()[f"ring {process}"]
    with mmap.mmap(segment.fd, 0) as memory:
        (head,) = struct.unpack_from("=Q", memory, at + HEAD_AT)
        padded = struct.pack("=II", len(data), kind) + data + bytes(-len(data) % 8)
        for n, byte in enumerate(padded):
            memory[at + DATA_AT + (head + n) % RING_BYTES] = byte
        struct.pack_into("=Q", memory, at + HEAD_AT, head + len(padded))


def move(segment, position: int, *, process: int = 0) -> None:
    """Let an empty ring go on from another position."""
    at, _ = segment.layout()[f"ring {process}"]
    with mmap.mmap(segment.fd, 0) as memory:
        struct.pack_into("=Q", memory, at + HEAD_AT, position)
        struct.pack_into("=Q", memory, at + TAIL_AT, position)


def _seconds(ns: int) -> float | None:
    return ns / 10**9 if ns > 0 else None  # of two ints: rounded once


def _count(value: int) -> int | None:
    return value if value >= 0 else None


def _number(value: float) -> float | None:
    return round(value, 9) if math.isfinite(value) else None


def decode(data: bytes, models: dict, replicas: dict, policy: str) -> dict:
    """What the line of a record says; unknown values are None."""
    r = dict(zip(FIELDS, FIXED.unpack_from(data), strict=True))
    text = data[FIXED.size : FIXED.size + r["text_bytes"]].decode("latin-1")
    request_id, _, trace = text.partition("\n")
    is_sent = r["slot"] >= 0
    return {
        "time": r["end_unix_ns"] / 10**9,
        "id": request_id,
        "trace": trace or None,
        "model": models.get(r["model"], "other"),
        "endpoint": named(ENDPOINTS, r["endpoint"]),
        "replica": replicas.get(r["slot"]),
        "policy": policy if is_sent else None,
        "reason": named(REASONS, r["reason"]) if is_sent else None,
        "matched_tokens": round(r["matched_tokens"]) if is_sent else None,
        "score": _number(r["score"]) if is_sent else None,
        "status": r["status"],
        "outcome": named(OUTCOME_NAMES, r["outcome"]),
        "estimated_prompt_tokens": round(r["estimated_prompt_tokens"]),
        "prompt_tokens": _count(r["prompt_tokens"]),
        "completion_tokens": _count(r["completion_tokens"]),
        "cached_tokens": _count(r["cached_tokens"]),
        "max_tokens": r["output_limit"] or None,
        "stream": bool(r["stream"]),
        "queue_wait_s": _seconds(r["queue_wait_ns"]),
        "ttft_s": _seconds(r["ttft_ns"]),
        "tpot_s": _number(r["tpot_s"]) if r["tpot_s"] else None,
        "duration_s": r["duration_ns"] / 10**9,
        "bytes_in": r["bytes_in"],
        "bytes_out": r["bytes_out"],
        "retries": r["retries"],
    }
