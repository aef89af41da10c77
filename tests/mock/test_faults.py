"""`/_control`: each fault looks to a client as it does with a real vLLM."""

from __future__ import annotations

import json
import time

import pytest
from captures import ask, captured, chat, connect, control, differences
from mock_command import running_mock

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def fleet():
    options = ("--model", "tiny", "--preset", "llama3-70b-8xh100-tp8")
    with running_mock(*options, replicas=2) as mock:
        yield mock


@pytest.fixture
def mock(fleet):
    """Both replicas up, repaired and idle."""
    for action in ({"action": "restart"}, {"action": "repair"}):
        answer = ask(fleet.dcgm_url, "/_control", {"replica": "all", **action})
        assert answer.status == 200
    return fleet


class Open:
    """A request in flight."""

    def __init__(self, url, **options):
        self.connection = connect(url)
        body = json.dumps(chat(max_tokens=2000, **options))
        self.connection.request("POST", CHAT, body, {"content-type": "application/json"})

    def finish(self):
        response = self.connection.getresponse()
        data = response.read()
        return response, data


def streamed(url):
    """A stream after its first event."""
    stream = Open(url, stream=True)
    stream.response = stream.connection.getresponse()
    stream.response.readline()
    return stream


def rest(stream):
    """What is left of a stream, as its last events."""
    return stream.response.read().decode().strip().split("\n\n")


def control_then_health(url, action):
    """The state after an action and, pipelined behind it so that no time passes, `/health`."""
    body = json.dumps({"action": action}).encode()
    head = b"POST /_control HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    sent = head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    connection = connect(url)
    connection.connect()
    connection.sock.sendall(sent + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    received = connection.sock.makefile("rb")
    (_, report), health = read_answer(received), read_answer(received)
    connection.close()
    return json.loads(report)["replicas"][0]["state"], health


def read_answer(file):
    """Status and body of the next answer on a connection."""
    head = b"".join(iter(file.readline, b"\r\n")).decode().lower()
    return int(head.split()[1]), file.read(int(head.split("content-length: ")[1].split()[0]))


def refused(url):
    try:
        ask(url, "/health")
    except ConnectionError:
        return True
    return False


def eventually(condition, patience_s=5.0):
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.005)


def state(mock, replica=0):
    return ask(mock.dcgm_url, "/_control").json["replicas"][replica]


def running(mock, count):
    eventually(lambda: state(mock)["running"] == count)


def test_a_killed_engine_ends_streams_with_an_error_event_and_then_refuses(mock):
    stream, plain = streamed(mock.url), Open(mock.url)
    running(mock, 2)
    state_then, health = control_then_health(mock.url, "kill")
    assert (state_then, *health) == ("dead", 503, b"")
    events = rest(stream)
    assert events[-2:] == captured("engine-killed-stream").body.decode().strip().split("\n\n")[-2:]
    assert not any("finish_reason" in e and '"finish_reason":null' not in e for e in events)
    response, body = plain.finish()
    real = captured("engine-killed-plain")
    assert (response.status, body) == (real.status, real.body)
    eventually(lambda: refused(mock.url))
    assert state(mock)["state"] == "down"


def test_a_restarted_replica_has_new_counters_an_empty_cache_and_a_new_start_time(mock):
    said = chat("A long story. " * 50, max_tokens=2)
    ask(mock.url, CHAT, said)

    def started():
        page = ask(mock.url, "/metrics").body.decode().splitlines()
        return next(line for line in page if line.startswith("process_start_time_seconds"))

    before = started()
    time.sleep(0.02)
    assert control(mock.url, "restart")["finished"] == 0
    assert started() != before
    assert ask(mock.url, CHAT, said).json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_sigterm_ends_requests_with_reason_abort_while_health_stays_200(mock):
    stream, plain = streamed(mock.url), Open(mock.url)
    running(mock, 2)
    state_then, health = control_then_health(mock.url, "sigterm")
    assert (state_then, *health) == ("stopping", 200, b"")
    last, done = rest(stream)[-2:]
    real = captured("sigterm-stream").events[-2][1]
    fake = json.loads(last.removeprefix("data: "))
    assert done == "data: [DONE]"
    assert differences(real, fake) == []
    assert fake["choices"][0]["delta"] == {"content": ""}
    assert fake["choices"][0]["finish_reason"] == "abort"
    response, body = plain.finish()
    assert response.status == 200
    whole = json.loads(body)
    assert whole["choices"][0]["finish_reason"] == "abort"
    assert differences(captured("sigterm-plain").json, whole) == []
    eventually(lambda: refused(mock.url))


def test_a_draining_replica_finishes_old_requests_and_gives_new_ones_500(mock):
    plain = Open(mock.url, n=1)
    plain_short = connect(mock.url)
    body = json.dumps(chat(max_tokens=60))
    plain_short.request("POST", CHAT, body, {"content-type": "application/json"})
    running(mock, 2)
    control(mock.url, "drain", timeout_s=1.5)
    real = captured("draining-500-new-request")
    for stream in (False, True):
        fresh = ask(mock.url, CHAT, chat(stream=stream))
        assert (fresh.status, fresh.body) == (real.status, real.body)
        assert fresh.headers.keys() == real.headers.keys()
    assert ask(mock.url, "/health").status == 200
    whole = json.loads(plain_short.getresponse().read())
    assert whole["choices"][0]["finish_reason"] == "length"
    whole = json.loads(plain.finish()[1])
    assert whole["choices"][0]["finish_reason"] == "abort"  # longer than the time-out
    eventually(lambda: refused(mock.url))


def test_a_frozen_replica_looks_healthy_and_says_nothing(mock):
    stream = streamed(mock.url)
    control(mock.url, "freeze")
    assert ask(mock.url, "/health").status == 200
    page = gauges(mock.url)
    fresh = Open(mock.url, stream=True)
    response = fresh.connection.getresponse()  # the head comes
    assert response.status == 200
    fresh.connection.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        response.readline()
    assert gauges(mock.url) == page
    control(mock.url, "unfreeze")
    for _ in range(50):
        assert stream.response.readline()
    fresh.connection.close()
    stream.connection.close()


def gauges(url):
    lines = ask(url, "/metrics").body.decode().splitlines()
    return [line for line in lines if line.startswith("vllm:")]


def test_a_crashed_server_cuts_its_streams_and_comes_back_after_its_time(mock):
    stream = streamed(mock.url)
    before = state(mock)
    control(mock.url, "kill", what="server", down_s=0.3)
    data = b"".join(iter(lambda: stream.connection.sock.recv(65536), b""))
    assert b"[DONE]" not in data
    assert not data.endswith(b"0\r\n\r\n")
    assert refused(mock.url)
    eventually(lambda: state(mock)["state"] == "up")
    assert ask(mock.url, CHAT, chat(max_tokens=1)).status == 200
    assert before["state"] == "up"


def test_overload_has_three_faces(mock):
    control(mock.url, "queue", limit=1)
    control(mock.url, "freeze")  # so that the first request stays in the queue
    waiting = Open(mock.url, stream=True)
    eventually(lambda: state(mock)["waiting"] == 1)
    for name, stream in (
        ("overload-503-nonstream", False),
        ("overload-503-stream-precheck", True),
    ):
        real, fake = captured(name), ask(mock.url, CHAT, chat(stream=stream))
        assert (fake.status, fake.body) == (real.status, real.body)
        assert fake.headers["connection"] == "close"
    control(mock.url, "queue", limit=1, after_head=True)
    real = captured("overload-stream-200-error-event")
    fake = ask(mock.url, CHAT, chat(stream=True))
    assert (fake.status, fake.body.strip()) == (real.status, real.body.strip())
    waiting.connection.close()


def test_a_slowed_replica_takes_its_factor_longer(mock):
    def seconds():
        begin = time.monotonic()
        ask(mock.url, CHAT, chat(max_tokens=20))
        return time.monotonic() - begin

    control(mock.url, "slow", factor=4.0)
    assert seconds() > 4 * 20 * 8.78e-3


def test_heat_shows_on_the_gpu_page_and_in_the_steps(mock):
    control(mock.url, "throttle", gpu=5, factor=2.5, ramp_s=0)
    page = dcgm(mock)
    assert page["DCGM_FI_DEV_SM_CLOCK"]["5"] < 1000
    assert page["DCGM_FI_DEV_GPU_TEMP"]["5"] >= 90
    assert page["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"]["5"] == 104
    assert page["DCGM_FI_DEV_SM_CLOCK"]["4"] == 1980
    begin = time.monotonic()
    ask(mock.url, CHAT, chat(max_tokens=20))
    assert time.monotonic() - begin > 2.4 * 20 * 8.78e-3


def dcgm(mock):
    """Values of the exporter's page by name and GPU."""
    found = {}
    for line in ask(mock.dcgm_url, "/metrics").body.decode().splitlines():
        if not line.startswith("#"):
            name, labels = line.split("{", 1)
            gpu = labels.split('gpu="')[1].split('"')[0]
            found.setdefault(name, {})[gpu] = float(line.rsplit(" ", 1)[1])
    return found


def test_a_lost_gpu_disappears_from_the_page_and_takes_the_engine_with_it(mock):
    assert "DCGM_FI_DEV_XID_ERRORS" not in dcgm(mock)
    body = {"replica": 1, "action": "xid", "code": 79, "gpu": 2}
    answer = ask(mock.url, "/_control", body).json["replicas"]
    assert [r["state"] for r in answer] == ["up", "dead"]
    page = dcgm(mock)
    assert page.pop("DCGM_FI_DEV_XID_ERRORS") == {"10": 79}
    assert all("10" not in gpus and len(gpus) == 15 for gpus in page.values())
    control(mock.dcgm_url, "repair")


def test_harmless_xids_and_ecc_counts_leave_the_engine_alone(mock):
    assert control(mock.url, "xid", code=63)["state"] == "up"
    assert control(mock.url, "ecc", gpu=1, single=3, double=2)["state"] == "up"
    page = dcgm(mock)
    assert page["DCGM_FI_DEV_XID_ERRORS"] == {"0": 63}
    assert page["DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"]["1"] == 3
    assert page["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"]["1"] == 2


def test_other_models_can_be_served_at_run_time(mock):
    control(mock.url, "model", names=["tiny", "lora-1"])
    ids = [model["id"] for model in ask(mock.url, "/v1/models").json["data"]]
    assert ids == ["tiny", "lora-1"]
    assert ask(mock.url, CHAT, {**chat(max_tokens=1), "model": "lora-1"}).status == 200


@pytest.mark.parametrize(
    ("wishes", "named"),
    [
        ({"action": "explode"}, "explode"),
        ({"action": "slow", "factor": "fast"}, "factor"),
        ({"action": "slow", "factor": 0}, "factor"),
        ({"action": "slow", "replica": 7}, "replica"),
        ({"action": "xid", "gpu": 8}, "gpu"),
        ({"action": "model", "names": []}, "names"),
    ],
)
def test_impossible_wishes_are_400_and_say_what_was_wrong(mock, wishes, named):
    answer = ask(mock.url, "/_control", wishes)
    assert answer.status == 400
    assert named in answer.json["error"]["message"]
