"""The metrics page of the real command: what is on it, what never gets on it, what survives."""

import http.client
import json
import os
import signal
import time
from pathlib import Path

import pytest
import yaml
from gateway_process import Fleet, free_port, get
from prometheus_client.parser import text_string_to_metric_families

from headrace.observe.table import METRICS, PREFIX

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]
UNKNOWN = 5000


def samples(fleet):
    """{(name, labels): value} of the page."""
    page = get(f"{fleet.admin}/metrics").decode()
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(page)
        for s in family.samples
    }


def total(found, name, **labels):
    """The sum over all series with these labels."""
    return sum(
        v for (n, own), v in found.items() if n == name and labels.items() <= dict(own).items()
    )


def until(condition, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return value


def data_planes(fleet):
    """Ids of the data-plane processes."""
    parent = fleet.gateway.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [
        int(pid)
        for pid in children
        if b"headrace.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def send_unknown(connection, number):
    """A request that names something nobody knows: a model, a path, or a method."""
    body, method, path = b"", "GET", f"/v1/unknown/{number}"
    if number % 3 == 0:
        body = json.dumps({"model": f"unknown-{number}", "prompt": "x"}).encode()
        method, path = "POST", "/v1/completions"
    elif number % 3 == 1:
        method, path = f"METHOD{number}", "/v1/chat/completions"
    elif number % 2:
        path = f"/unknown/{number}"
    connection.request(method, path, body, {"content-type": "application/json"})
    connection.getresponse().read()


def test_five_thousand_unknown_names_add_few_series():
    with Fleet(1) as fleet:
        fleet.chat()
        before = samples(fleet)
        connection = http.client.HTTPConnection("127.0.0.1", fleet.port)
        for number in range(UNKNOWN):
            try:
                send_unknown(connection, number)
            except (http.client.HTTPException, OSError):
                connection.close()
        found = samples(fleet)
    assert len(found) - len(before) < 20
    assert total(found, "headrace_requests_total") >= UNKNOWN / 3
    labels = {value for _, own in found for _, value in own}
    assert not any("unknown-" in value or "METHOD" in value for value in labels)


def test_counters_survive_a_killed_process_and_no_request_stays_in_flight():
    with Fleet(1, mock=("--speedup", "0.2")) as fleet:
        for _ in range(5):
            fleet.chat(tokens=2)
        # a request is booked after its last byte has left
        until(lambda: total(samples(fleet), "headrace_requests_total", outcome="ok") == 5)
        before = samples(fleet)
        connections = [begin_long_stream(fleet) for _ in range(3)]
        until(lambda: total(samples(fleet), "headrace_replica_inflight") == 3)
        (old,) = data_planes(fleet)
        os.kill(old, signal.SIGKILL)
        until(lambda: total(samples(fleet), "headrace_replica_inflight") == 0)
        for connection in connections:
            connection.close()
        until(lambda: data_planes(fleet) not in ([], [old]))
        for _ in range(3):
            fleet.chat(tokens=2)
        until(lambda: total(samples(fleet), "headrace_requests_total", outcome="ok") == 8)
        after = samples(fleet)
        for name in ("headrace_ttft_seconds_count", "headrace_decisions_total"):
            assert total(after, name) >= total(before, name) + 3


def begin_long_stream(fleet):
    """A stream that does not end by itself; the open connection."""
    connection = http.client.HTTPConnection("127.0.0.1", fleet.port)
    body = {"model": "tiny", "stream": True, "max_tokens": 4000}
    body["messages"] = [{"role": "user", "content": "long"}]
    kind = {"content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), kind)
    return connection


def test_a_busy_fleet_with_gpus_shows_every_metric(tmp_path):
    dcgm_port = free_port()
    fleet = Fleet(2, mock=("--dcgm-port", str(dcgm_port)))
    config = tmp_path / "headrace.yaml"
    page = f"http://127.0.0.1:{dcgm_port}/metrics"
    replicas = [{"url": u, "dcgm_url": page, "gpus": [str(i)]} for i, u in enumerate(fleet.urls)]
    timing = {"hardware": {"interval_s": 0.5}, "control": {"scrape_interval_s": 0.2}}
    health = {"probe_interval_s": 0.5, "interval_s": 30}
    config.write_text(yaml.safe_dump({"replicas": replicas, "health": health, **timing}))
    fleet.serve_words = ("--config", str(config))
    fleet.names_replicas = False
    # shown only after failures: inside control, of a replica
    rare = {"control_errors", "retries"}
    wanted = {PREFIX + m.name for m in METRICS if m.name not in rare}

    def missing():
        time.sleep(0.7)  # without a pause live traffic proves life, and nobody probes
        for n in range(5):
            fleet.chat(f"{n} prompt that comes again and again {'x' * 2000}")
        send_unknown(http.client.HTTPConnection("127.0.0.1", fleet.port), 0)
        text = get(f"{fleet.admin}/metrics").decode()
        return wanted - {f.name for f in text_string_to_metric_families(text) if f.samples}

    with fleet:
        fleet.control(replica=0, action="xid", code=31)  # of a program: harmless, but shown
        until(lambda: missing() == set())
