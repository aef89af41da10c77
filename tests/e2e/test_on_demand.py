"""A model without replicas: requests wait, the plan asks for one, it comes, all are answered."""

import json
import threading
import time

import pytest
from gateway_process import Command, Fleet, free_port, get

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CONFIG = """
health: {interval_s: 0.3, success_threshold: 1, slow_start_s: 0}
autoscale: {models: [{model: big, min_replicas: 0}]}
"""


def plan(fleet):
    return json.loads(get(f"{fleet.admin}/autoscale"))["models"]["big"]


def until(condition, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_requests_for_a_model_that_sleeps_are_answered_when_it_wakes(tmp_path):
    config = tmp_path / "headrace.yaml"
    config.write_text(CONFIG)
    port, answers = free_port(), []
    with Fleet(1, serve=("--config", str(config), "--processes", "2")) as fleet:
        until(lambda: plan(fleet)["desired"] == 0)
        asking = [
            threading.Thread(target=lambda: answers.append(fleet.chat(model="big")))
            for _ in range(3)
        ]
        for thread in asking:
            thread.start()
        until(lambda: plan(fleet)["queued"] == 3)
        assert plan(fleet)["desired"] == 1
        assert b"[DONE]" in fleet.chat()  # the other model serves meanwhile
        assert b'headrace_queue_depth{model="big"} 3' in get(f"{fleet.admin}/metrics")
        mock = Command("mock", "--model", "big", "--port", str(port), "--speedup", "10")
        try:
            mock.wait_line(b"headrace mock ready")
            get(f"{fleet.admin}/replicas", json.dumps({"url": f"http://127.0.0.1:{port}"}).encode())
            for thread in asking:
                thread.join(20)
        finally:
            mock.stop()
        assert len(answers) == 3 and all(b"[DONE]" in answer for answer in answers)
        until(lambda: plan(fleet)["queued"] == 0)
