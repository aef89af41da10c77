"""`headrace bench` as a user runs it."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from headrace.cli import main

KEYS = {
    "headrace", "command", "requests", "duration_s", "ttft_s", "tpot_s", "itl_s", "e2e_s",
    "output_tokens_per_s", "goodput_per_s", "per_replica", "errors",
}  # fmt: skip


@pytest.fixture(scope="module")
def mock_url():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    argv = [sys.executable, "-m", "headrace", "mock", "--port", port, "--speedup", "20"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        ready = process.stderr.readline()
        yield re.search(r"http://\S+", ready)[0]
        process.terminate()


def bench(capsys, *words):
    code = main(["bench", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.e2e
def test_an_open_loop_run_prints_the_contract_keys(mock_url, capsys, tmp_path):
    html = tmp_path / "report.html"
    words = ["--rate", "40", "--requests", "20", "--output-tokens", "8", "--html", str(html)]
    code, document = bench(capsys, mock_url, *words, "--quiet")
    assert code == 0
    assert document.keys() >= KEYS
    assert document["requests"] == {"sent": 20, "ok": 20, "failed": 0, "rejected": 0}
    assert document["ttft_s"].keys() == {"mean", "p50", "p90", "p95", "p99", "max"}
    assert html.read_text().count("<svg") == 4


@pytest.mark.e2e
def test_a_trace_is_replayed_at_the_rate_asked_for(mock_url, capsys, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = "".join(f"2026-01-01 00:{i:02d}:00.0000000,50,4\n" for i in range(10))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    code, document = bench(capsys, mock_url, "--dataset", str(trace), "--rate", "30")
    assert code == 0
    assert document["requests"]["ok"] == 10
    assert document["duration_s"] < 5


@pytest.mark.e2e
def test_a_server_that_is_not_there_is_a_failure(capsys):
    assert main(["bench", "http://127.0.0.1:9", "--rate", "1"]) == 1
    assert "127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, says",
    [
        (["http://x"], "--rate"),
        (["x", "--rate", "1"], "http://"),
        (["http://x", "--rate", "1", "--dataset", "nosuch"], "nosuch"),
        (["http://x", "--find-capacity", "--concurrency", "2"], "--find-capacity"),
        (["http://x", "--rate", "1", "--speed", "2"], "--speed"),
        (["http://x", "y", "--rate", "1"], "one URL"),
    ],
)
def test_options_that_make_no_sense_exit_2_and_say_why(capsys, words, says):
    assert main(["bench", *words]) == 2
    assert says in capsys.readouterr().err


def wait_for_finished_requests(url):
    """Until the mock has answered: the harness is at work then, however slow its start."""
    before = finished_requests(url)
    deadline = time.monotonic() + 30
    while finished_requests(url) < before + 3:
        assert time.monotonic() < deadline, "no request came"
        time.sleep(0.05)


def finished_requests(url):
    with urllib.request.urlopen(f"{url}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(x.split()[-1]) for x in lines if x.startswith("vllm:request_success_total"))


@pytest.mark.e2e
def test_ctrl_c_shows_what_was_measured(mock_url):
    argv = [sys.executable, "-m", "headrace", "bench", mock_url, "--rate", "50", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        wait_for_finished_requests(mock_url)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert json.loads(output)["requests"]["ok"] > 0
