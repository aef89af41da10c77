"""Spans reach a real OTLP/HTTP collector, with the ids and attributes of the request."""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra headrace[otel] is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from headrace.observe.tracing import TraceIds, Tracing, parse_ids

ENTRY = {
    "time": 1_700_000_000.5,
    "id": "req-1",
    "model": "tiny",
    "endpoint": "chat_completions",
    "replica": "gpu1:8000",
    "policy": "cost_aware",
    "reason": "cost",
    "status": 200,
    "outcome": "ok",
    "prompt_tokens": 12,
    "completion_tokens": 5,
    "cached_tokens": None,
    "max_tokens": 64,
    "queue_wait_s": None,
    "ttft_s": 0.125,
    "tpot_s": 0.02,
    "duration_s": 0.25,
    "retries": 0,
}


@pytest.fixture
def collector():
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            raw = self.rfile.read(int(self.headers["content-length"]))
            bodies.append((self.path, ExportTraceServiceRequest.FromString(raw)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    thread.join()
    server.server_close()


def sent_spans(bodies):
    return [
        span
        for _, request in bodies
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def test_a_span_arrives_with_ids_times_and_gen_ai_attributes(collector):
    url, bodies = collector
    tracing = Tracing(url, "1.2.3")
    tracing.add({**ENTRY, "trace": f"{0xABC:032x}-{0xDEF:016x}-{0x123:016x}"})
    tracing.add({**ENTRY, "trace": f"{0xABD:032x}-{0xDE0:016x}-{0:016x}", "outcome": "timeout"})
    tracing.add({**ENTRY, "trace": None})
    tracing.close()
    assert {path for path, _ in bodies} == {"/v1/traces"}
    good, bad = sent_spans(bodies)
    assert int.from_bytes(good.trace_id, "big") == 0xABC
    assert int.from_bytes(good.span_id, "big") == 0xDEF
    assert int.from_bytes(good.parent_span_id, "big") == 0x123
    assert good.end_time_unix_nano - good.start_time_unix_nano == 250_000_000
    found = {a.key: a.value for a in good.attributes}
    assert found["gen_ai.request.model"].string_value == "tiny"
    assert found["gen_ai.usage.input_tokens"].int_value == 12
    assert "headrace.cached_tokens" not in found
    assert good.status.code == 0
    assert bad.status.code == 2
    assert bad.parent_span_id == b""


def test_a_collector_that_is_gone_holds_nobody_up():
    tracing = Tracing("http://127.0.0.1:9", "1")
    tracing.add({**ENTRY, "trace": f"{0xABC:032x}-{0xDEF:016x}-{0x123:016x}"})
    began = time.monotonic()
    tracing.close(timeout_s=0.2)
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize("text", ["", "abc", "0-1-2", "g" * 32 + "-" + "0" * 16 + "-" + "0" * 16])
def test_texts_that_are_no_ids_are_none(text):
    assert parse_ids(text) is None


def test_ids_are_read_from_a_records_text():
    assert parse_ids("0" * 31 + "a-" + "0" * 15 + "b-" + "0" * 16) == TraceIds(10, 11, 0)
