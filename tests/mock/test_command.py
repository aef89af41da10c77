"""The command line of `headrace mock`: ports, readiness, the end."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request

from mock_command import running_mock


def test_replicas_listen_on_consecutive_ports_and_sigterm_ends_with_0():
    with running_mock("--model", "a", "b", replicas=3) as mock:
        ports = [int(url.rsplit(":", 1)[1]) for url in mock.urls]
        assert ports == [ports[0], ports[0] + 1, ports[0] + 2]
        for url in mock.urls:
            with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as answer:
                assert [m["id"] for m in json.load(answer)["data"]] == ["a", "b"]
        assert mock.stop() == 0


def test_a_taken_port_is_reported_with_exit_1():
    with running_mock() as mock:
        port = mock.url.rsplit(":", 1)[1]
        words = [sys.executable, "-m", "headrace", "mock", "--port", port]
        second = subprocess.run(words, capture_output=True, text=True, timeout=20)
        assert second.returncode == 1
        assert port in second.stderr


def test_impossible_options_are_bad_usage():
    for words in (
        ["--replicas", "0"],
        ["--speedup", "-1"],
        ["--preset", "no-such"],
        ["--noise", "1"],
        ["--port", "65535", "--replicas", "2"],
    ):
        command = [sys.executable, "-m", "headrace", "mock", *words]
        assert subprocess.run(command, capture_output=True, timeout=20).returncode == 2
