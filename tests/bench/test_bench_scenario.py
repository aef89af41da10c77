"""`headrace bench --scenario`: the simulator's files as load and faults on real sockets."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request

import pytest
from bench_samples import run_of, sample

from headrace.bench import prompts
from headrace.bench.scenario import order
from headrace.bench.summary import Objective, summarise
from headrace.cli import main
from headrace.mock.text import token_count
from headrace.sim.scenario import Event

SCENARIO = """
replicas:
  - {{count: 2, preset: llama3-8b-h100}}
  - {{count: 1, preset: llama3-8b-h100, slow: 3.0, kv_tokens: 50000}}
traffic: {{dataset: {dataset}, requests: 20, rate: 40, input_tokens: 50, output_tokens: 3,
          users: 5, think_s: 0.1}}
events: {events}
warmup_ratio: 0.25
"""


def free_row(count):
    """The first of some consecutive free ports, below those of outgoing connections."""
    for first in range(20000 + os.getpid() % 10000, 32000, count):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no row of free ports")


@contextlib.contextmanager
def fleet(scenario):
    """`headrace mock --scenario`; the URLs of its replicas."""
    argv = [sys.executable, "-m", "headrace", "mock", "--port", str(free_row(3))]
    with subprocess.Popen(
        [*argv, "--scenario", str(scenario)], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield re.findall(r"http://\S+", process.stderr.readline())
        finally:
            process.terminate()


def scenario_file(tmp_path, dataset="synthetic", events="[]"):
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO.format(dataset=dataset, events=events))
    return path


def states(url):
    with urllib.request.urlopen(f"{url}/_control") as answer:
        return [replica["state"] for replica in json.load(answer)["replicas"]]


@pytest.mark.e2e
def test_a_scenario_is_sent_and_its_faults_are_made(tmp_path, capsys):
    path = scenario_file(tmp_path, events="[{at_s: 0.1, action: kill, replica: 2}]")
    with fleet(path) as urls:
        assert states(urls[0]) == ["up", "up", "up"]
        code = main(["bench", urls[0], "--scenario", str(path), "--control", urls[1], "--json"])
        assert states(urls[0]) == ["up", "up", "down"]
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["requests"]["ok"] == 20
    assert document["warmup_requests"] == 5
    assert 0.2 < document["duration_s"] < 5


@pytest.mark.e2e
def test_chats_of_a_scenario_wait_for_their_answers(tmp_path, capsys):
    path = scenario_file(tmp_path, dataset="chats")
    with fleet(path) as urls:
        assert main(["bench", urls[0], "--scenario", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["requests"]["ok"] == 20
    assert document["prefix_hit_ratio"] > 0


@pytest.mark.e2e
def test_a_brown_out_refuses_connections_until_it_ends(tmp_path):
    path = scenario_file(tmp_path)
    with fleet(path) as urls:
        tell(urls[0], {"replica": 1, "action": "refuse"})
        with pytest.raises(OSError):
            urllib.request.urlopen(f"{urls[1]}/health", timeout=2)
        tell(urls[0], {"replica": 1, "action": "accept"})
        urllib.request.urlopen(f"{urls[1]}/health", timeout=2).close()


def tell(url, wishes):
    headers = {"content-type": "application/json"}
    body = json.dumps(wishes).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/_control", body, headers)).close()


def test_events_become_orders_to_the_mock():
    slowed = {"replica": 2, "action": "slow", "factor": 3.0}
    assert order(Event(1.0, "slow", 2, 3.0)) == slowed
    assert order(Event(1.0, "kill", 1)) == {"replica": 1, "action": "kill", "what": "server"}
    assert order(Event(1.0, "restart", 0)) == {"replica": 0, "action": "restart"}


def test_the_first_requests_are_not_counted_whatever_ends_first():
    late = sample(due_s=1.0, ttft_s=0.1)
    early = sample(due_s=0.0, ttft_s=5.0)
    found = summarise(run_of([late, early]), Objective(), warmup_requests=1)
    assert found["ttft_s"]["max"] == pytest.approx(0.1)
    assert found["requests"]["ok"] == 2


def test_prompts_are_as_long_for_the_mock_as_the_workload_says():
    assert token_count(prompts.text(7, 300).encode()) == 300
    assert {len(word) for word in prompts.WORDS} == {3}


@pytest.mark.parametrize(
    "words, says",
    [
        (["--scenario", "crash"], "--control"),
        (["--scenario", "nosuch"], "nosuch"),
        (["--scenario", "a10", "--concurrency", "3"], "--concurrency"),
    ],
)
def test_what_a_scenario_cannot_do_exits_2_and_says_why(capsys, words, says):
    assert main(["bench", "http://127.0.0.1:9", *words]) == 2
    assert says in capsys.readouterr().err
