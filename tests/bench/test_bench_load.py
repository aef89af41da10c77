"""Load against a scripted server: what counts as an answer, and from when latency counts."""

import asyncio
import json

import pytest
from aiohttp import web

from headrace.bench.load import Run, Target, limited
from headrace.bench.prompts import chat_body, messages, text
from headrace.bench.samples import REJECTIONS
from headrace.bench.workload import Job, Request, Segment

USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}


def content(word, finish=None):
    return {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": finish}]}


def event(document):
    return (
        b"data: "
        + (document if isinstance(document, bytes) else json.dumps(document).encode())
        + b"\n\n"
    )


GOOD = [content("a"), content("b"), content("c", "length"), USAGE, b"[DONE]"]


async def stream(request, events, gap_s=0.0, cut=False):
    response = web.StreamResponse(
        headers={"content-type": "text/event-stream", "x-headrace-replica": "r1"}
    )
    await response.prepare(request)
    for each in events:
        await response.write(event(each))
        await asyncio.sleep(gap_s)
    if cut:
        request.transport.abort()
    return response


def job(session=None):
    return Job((Segment(1, 4),), 3, session)


def measure(handler, drive, **target):
    """Drive a run against a server with that handler; returns the run."""

    async def handle(request):
        return await handler(request)

    async def main():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        try:
            async with Run(Target(f"http://127.0.0.1:{port}", "m", **target)).open() as run:
                await drive(run)
        finally:
            await runner.cleanup()
        return run

    return asyncio.run(main())


def one(handler, **target):
    run = measure(handler, lambda run: run.closed_loop(iter([job()]), 1, 9.0), **target)
    (sample,) = run.record.samples
    assert run.record.in_flight == run.record.awaiting == 0
    return sample


def test_a_complete_stream_is_measured():
    sample = one(lambda request: stream(request, GOOD, gap_s=0.01))
    assert sample.ok and sample.replica == "r1"
    assert (sample.prompt_tokens, sample.output_tokens) == (9, 3)
    assert 0 < sample.ttft_s < sample.e2e_s
    assert sample.tpot_s > 0.005  # two gaps of 10 ms; the last read may come late


@pytest.mark.parametrize(
    "events, cut, kind",
    [
        (GOOD[:2], True, "cut"),
        (GOOD[:3], False, "incomplete"),
        ([{"error": {"message": "full", "code": 503}}, b"[DONE]"], False, "error_503"),
        ([*GOOD[:2], {"error": {"type": "upstream_error"}}], False, "error_upstream_error"),
    ],
)
def test_a_stream_that_fails_is_no_success(events, cut, kind):
    sample = one(lambda request: stream(request, events, cut=cut))
    assert sample.error == kind
    assert sample.rejected == (kind in REJECTIONS)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_a_refusal_is_named_by_its_status(status):
    async def refuse(request):
        return web.json_response({"error": {}}, status=status)

    sample = one(refuse)
    assert sample.error == f"status_{status}"
    assert sample.rejected == (status in (429, 503))


def test_a_silent_server_runs_into_the_timeout():
    async def hang(request):
        await asyncio.sleep(5)

    assert one(hang, timeout_s=0.1).error == "timeout"


def test_nobody_listening_is_a_connect_error():
    async def main():
        async with Run(Target("http://127.0.0.1:9", "m")).open() as run:
            await run.closed_loop(iter([job()]), 1, 9.0)
        return run

    assert asyncio.run(main()).record.samples[0].error == "connect"


def test_open_loop_latency_counts_from_the_due_time():
    """A rig that is late must not hide it: the wait belongs to the measurement."""

    async def drive(run):
        await asyncio.sleep(0.2)
        await run.open_loop([Request(0.05, job())])

    (sample,) = measure(lambda request: stream(request, GOOD), drive).record.samples
    assert sample.due_s == 0.05
    assert sample.ttft_s >= 0.15
    assert sample.sent_s - sample.due_s >= 0.15


def test_open_loop_does_not_wait_for_answers():
    async def drive(run):
        await run.open_loop([Request(i * 0.01, job()) for i in range(10)])

    run = measure(lambda request: stream(request, GOOD, gap_s=0.1), drive)
    assert max(in_flight for _, in_flight, _ in run.record.levels) == 10


def test_closed_loop_keeps_its_number_under_way():
    run = measure(
        lambda request: stream(request, GOOD, gap_s=0.01),
        lambda run: run.closed_loop((job() for _ in range(12)), 3, 9.0),
    )
    assert len(run.record.samples) == 12
    assert max(in_flight for _, in_flight, _ in run.record.levels) == 3


def test_a_turn_waits_for_the_answer_before_it():
    async def drive(run):
        await run.open_loop([Request(0.0, job("chat-1")), Request(0.01, job("chat-1"))])

    run = measure(lambda request: stream(request, GOOD, gap_s=0.05), drive)
    first, second = run.record.samples
    assert second.sent_s >= first.end_s
    assert second.ttft_s < 0.05  # the user's own waiting is no latency


def test_limits_end_a_load_by_time_and_number():
    requests = [Request(float(i), job()) for i in range(10)]
    assert len(list(limited(requests, 4.5, None))) == 5
    assert len(list(limited(requests, 99.0, 3))) == 3


def test_equal_segments_are_equal_text():
    assert text(5, 10) == text(5, 10)
    assert text(5, 100).startswith(text(5, 10))
    assert text(5, 10) != text(6, 10)
    assert len(text(5, 10).split()) == 10


def test_neighbouring_segments_of_a_role_are_one_message():
    prompt = (Segment(1, 2, "system"), Segment(2, 2), Segment(3, 2), Segment(4, 2, "assistant"))
    assert [m["role"] for m in messages(prompt)] == ["system", "user", "assistant"]
    body = json.loads(chat_body(Job(prompt, 7), "m", ignore_eos=False))
    assert body["max_tokens"] == 7 and body["stream"] and "ignore_eos" not in body


def test_requests_that_come_together_do_not_wait_for_each_others_words():
    worded = []

    async def handler(request):
        return await stream(request, GOOD)

    async def drive(run):
        requests = [Request(0.3, job()) for _ in range(5)]
        body = run.target.body

        class Noting:
            def body(self, one):
                worded.append(run.now_s())
                return body(one)

        run.target = Noting()
        await run.open_loop(requests)

    run = measure(handler, drive)
    assert [s.due_s for s in run.record.samples] == [0.3] * 5
    assert max(worded) < 0.3 <= min(s.sent_s for s in run.record.samples)
