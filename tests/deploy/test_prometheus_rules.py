"""The shipped Prometheus files by promtool, and every metric they name against the table."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.observe.table import sample_names

FILES = Path(__file__).parents[2] / "deploy" / "prometheus"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is missing: install the Debian package prometheus"
)


def promtool(*words):
    return subprocess.run(
        [PROMTOOL, *words], cwd=FILES, capture_output=True, text=True, timeout=50, check=False
    )


@needs_promtool
@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "recording.yml", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
)
def test_promtool_accepts_the_files(words):
    result = promtool(*words)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["recording.yml", "alerts.yml"])
def test_rules_name_only_metrics_that_exist(name):
    used = set(re.findall(r"\bheadrace_[a-z0-9_]+", (FILES / name).read_text()))
    assert used
    assert used <= sample_names()


def test_every_alert_is_explained_in_the_operations_guide():
    alerts = re.findall(r"alert: (\w+)", (FILES / "alerts.yml").read_text())
    guide = (FILES.parents[1] / "docs" / "operations.md").read_text()
    assert len(alerts) >= 10
    assert [a for a in alerts if f"### {a}\n" not in guide] == []
