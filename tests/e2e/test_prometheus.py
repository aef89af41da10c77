"""A real Prometheus scrapes a real gateway with the shipped rules, and answers queries."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
from pathlib import Path

import pytest
from gateway_process import Fleet, free_port, get

FILES = Path(__file__).parents[2] / "deploy" / "prometheus"
PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        PROMETHEUS is None, reason="prometheus is missing: install the Debian package prometheus"
    ),
]


@pytest.fixture(scope="module")
def fleet():
    with Fleet(2, serve=("--scrape-interval-secs", "0.5")) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(fleet, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    for name in ("recording.yml", "alerts.yml"):
        text = (FILES / name).read_text().replace("interval: 15s", "interval: 1s")
        (folder / name).write_text(text)
    config = (FILES / "prometheus.yml").read_text()
    config = config.replace("127.0.0.1:29000", f"127.0.0.1:{fleet.admin_port}")
    config = re.sub(r"_interval: \d+s", "_interval: 1s", config)
    (folder / "prometheus.yml").write_text(config)
    port = free_port()
    process = subprocess.Popen(
        [
            *(PROMETHEUS, f"--config.file={folder}/prometheus.yml"),
            *(f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(10)


def ask(url, expr):
    """The result vector of an instant query."""
    query = urllib.parse.urlencode({"query": expr})
    try:
        return json.loads(get(f"{url}/api/v1/query?{query}"))["data"]["result"]
    except OSError:
        return []


def test_half_a_minute_of_traffic_is_seen_by_a_real_prometheus(fleet, prometheus):
    end = time.monotonic() + 30
    sent = 0
    while time.monotonic() < end:
        fleet.chat(f"request {sent}")
        sent += 1
        time.sleep(0.2)
    time.sleep(2.5)
    (total,) = ask(prometheus, 'sum(headrace_requests_total{outcome="ok"})')
    assert float(total["value"][1]) == sent
    (rate,) = ask(prometheus, "sum(headrace:requests:rate)")
    assert float(rate["value"][1]) > 0
    (p95,) = ask(prometheus, "headrace:ttft_seconds:p95")
    assert 0 < float(p95["value"][1]) < 3
    assert p95["metric"]["model"] == "tiny"
    states = ask(prometheus, 'headrace_replica_state{state="ready"} == 1')
    assert len(states) == 2
    assert ask(prometheus, 'ALERTS{alertstate="firing"}') == []
    rules = json.loads(get(f"{prometheus}/api/v1/rules"))["data"]["groups"]
    assert all(rule["health"] == "ok" for group in rules for rule in group["rules"])


def test_the_page_passes_promtool(fleet):
    page = get(f"{fleet.admin}/metrics")
    result = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
