"""`traceparent` crosses the gateway, and a span of the request hangs between the two hops."""

import asyncio
import re

import pytest
from gateway_loop import play

pytest.importorskip("opentelemetry.sdk", reason="the extra headrace[otel] is not installed")

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACING = {"observability": {"otlp_endpoint": "http://127.0.0.1:9"}}  # nobody listens


class Spans:
    """Stands in for the exporter: keeps what it is given."""

    def __init__(self):
        self.entries = []

    def add(self, entry):
        if entry["trace"]:
            self.entries.append(entry)

    def close(self):
        pass


def run(scenario, tree=TRACING, **more):
    async def with_spans(gateway, engines):
        if gateway.control.upward.tracing is not None:
            gateway.control.upward.tracing.close(timeout_s=0.0)
        spans = gateway.control.upward.tracing = Spans()
        await scenario(gateway, engines, spans)

    play(with_spans, tree, **more)


async def spans_of(spans, count):
    for _ in range(200):
        if len(spans.entries) >= count:
            break
        await asyncio.sleep(0.01)
    assert len(spans.entries) == count
    return [entry["trace"].split("-") for entry in spans.entries]


def test_the_clients_trace_goes_on_with_our_span_as_parent():
    async def scenario(gateway, engines, spans):
        sent = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1,other=2"}
        await gateway.chat(headers=sent)
        (head,) = engines[0].heads
        found = re.fullmatch(f"00-{TRACE}-([0-9a-f]{{16}})-01", head["traceparent"])
        assert found and found[1] != SPAN
        assert head.getall("traceparent") == [head["traceparent"]]
        assert head["tracestate"] == "vendor=1,other=2"
        assert await spans_of(spans, 1) == [[TRACE, found[1], SPAN]]

    run(scenario)


@pytest.mark.parametrize(
    "sent", [{}, {"traceparent": "00-0-0-01", "tracestate": "a=1"}, {"tracestate": "a=1"}]
)
def test_without_a_valid_parent_a_trace_begins(sent):
    async def scenario(gateway, engines, spans):
        await gateway.chat(headers=sent)
        await gateway.chat(headers=sent, stream=True)
        first, second = (head["traceparent"] for head in engines[0].heads)
        assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", first)
        assert first[:35] != second[:35]
        assert all("tracestate" not in head for head in engines[0].heads)
        assert await spans_of(spans, 2) == [
            [first[3:35], first[36:52], "0" * 16],
            [second[3:35], second[36:52], "0" * 16],
        ]

    run(scenario)


def test_what_the_client_does_not_sample_is_passed_on_and_not_exported():
    async def scenario(gateway, engines, spans):
        await gateway.chat(headers={"traceparent": f"00-{TRACE}-{SPAN}-00"})
        assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-00", engines[0].heads[0]["traceparent"])
        await gateway.chat(headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
        assert len(await spans_of(spans, 1)) == 1

    run(scenario)


def test_a_refused_request_has_its_span_too():
    async def scenario(gateway, engines, spans):
        status, _, _ = await gateway.chat(
            model="unknown", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"}
        )
        assert status == 404
        ((trace, _, parent),) = await spans_of(spans, 1)
        assert (trace, parent) == (TRACE, SPAN)
        assert spans.entries[0]["status"] == 404

    run(scenario)


def test_without_tracing_nothing_is_touched():
    async def scenario(gateway, engines, spans):
        odd = {"traceparent": "whatever", "tracestate": "a=1"}
        await gateway.chat(headers=odd)
        await gateway.chat()
        assert engines[0].heads[0]["traceparent"] == "whatever"
        assert engines[0].heads[0]["tracestate"] == "a=1"
        assert "traceparent" not in engines[0].heads[1]
        assert spans.entries == []

    run(scenario, tree={"observability": {"access_log": False}})


def test_the_decision_names_policy_reason_estimate_match_and_score():
    async def scenario(gateway, engines):
        _, headers, _ = await gateway.chat(headers={"x-headrace-debug": "1"})
        number = r"[-+.0-9e]+|inf|nan"
        assert re.fullmatch(
            rf"policy=cost_aware; reason=\w+; prompt_tokens=\d+; matched_tokens=\d+; "
            rf"score=({number})",
            headers["x-headrace-decision"],
        )
        _, headers, _ = await gateway.chat()
        assert "x-headrace-decision" not in headers

    play(scenario)
