"""OpenTelemetry: one span a request, built from its access record and exported by a thread.

Needs the extra `headrace[otel]`. The process that served the request made the ids and sent them to
the replica as `traceparent`; the span is made here, after the fact, so the hot path pays nothing.
Attribute names: OpenTelemetry semantic conventions for generative AI and HTTP.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from headrace.errors import ConfigError

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError:  # the extra is not installed
    OTLPSpanExporter = None  # type: ignore[assignment,misc]

CLOSE_TIMEOUT_S = 3.0
OPERATIONS = {"chat_completions": "chat", "completions": "text_completion"}


class TraceIds(NamedTuple):
    """Ids of a request's span; `parent` 0: it began the trace."""

    trace: int
    span: int
    parent: int


def parse_ids(text: str) -> TraceIds | None:
    """Ids from the second line of a record's text; None when there is none."""
    parts = text.split("-")
    if [len(p) for p in parts] != [32, 16, 16]:
        return None
    try:
        return TraceIds(*(int(p, 16) for p in parts))
    except ValueError:
        return None


def attributes(entry: dict[str, Any]) -> dict[str, Any]:
    """The span's attributes from an access record; unknown values are left out."""
    found = {
        "gen_ai.operation.name": OPERATIONS.get(entry["endpoint"], entry["endpoint"]),
        "gen_ai.request.model": entry["model"],
        "gen_ai.request.max_tokens": entry["max_tokens"],
        "gen_ai.usage.input_tokens": entry["prompt_tokens"],
        "gen_ai.usage.output_tokens": entry["completion_tokens"],
        "gen_ai.server.time_to_first_token": entry["ttft_s"],
        "gen_ai.server.time_per_output_token": entry["tpot_s"],
        "http.response.status_code": entry["status"],
        "server.address": entry["replica"],
        "headrace.request_id": entry["id"],
        "headrace.policy": entry["policy"],
        "headrace.reason": entry["reason"],
        "headrace.outcome": entry["outcome"],
        "headrace.retries": entry["retries"],
        "headrace.queue_wait": entry["queue_wait_s"],
        "headrace.cached_tokens": entry["cached_tokens"],
    }
    return {name: value for name, value in found.items() if value is not None}


class Tracing:
    """Exports spans to an OTLP/HTTP endpoint; raises ConfigError when the extra is missing."""

    def __init__(self, endpoint: str, version: str) -> None:
        if OTLPSpanExporter is None:
            raise ConfigError(
                "observability.otlp_endpoint: tracing needs `pip install headrace[otel]`"
            )
        path = "" if endpoint.rstrip("/").endswith("/v1/traces") else "/v1/traces"
        self._resource = Resource.create({"service.name": "headrace", "service.version": version})
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=endpoint.rstrip("/") + path), schedule_delay_millis=1000
        )

    def add(self, entry: dict[str, Any]) -> None:
        """Queue the span of one finished request; never blocks, drops when the queue is full."""
        ids = parse_ids(entry["trace"] or "")
        if ids is None:
            return
        flags = TraceFlags(TraceFlags.SAMPLED)
        end_ns = int(entry["time"] * 1e9)
        failed = entry["outcome"] not in ("ok", "client_error", "client_closed")
        span = ReadableSpan(
            name=f"{OPERATIONS.get(entry['endpoint'], entry['endpoint'])} {entry['model']}",
            context=SpanContext(ids.trace, ids.span, is_remote=False, trace_flags=flags),
            parent=SpanContext(ids.trace, ids.parent, is_remote=True, trace_flags=flags)
            if ids.parent
            else None,
            resource=self._resource,
            attributes=attributes(entry),
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR, entry["outcome"])
            if failed
            else Status(StatusCode.UNSET),
            start_time=end_ns - int(entry["duration_s"] * 1e9),
            end_time=end_ns,
        )
        self._processor.on_end(span)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Send what is queued; a collector that does not answer is given up after the time-out."""
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        closing.join(timeout_s)
