"""The Grafana dashboard is what its script makes, and asks only for metrics that exist."""

import json
import re
import subprocess
import sys
from pathlib import Path

from headrace.observe.table import sample_names

FILES = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARD = json.loads((FILES / "headrace.json").read_text())


def queries():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def test_the_file_is_what_the_script_makes():
    made = subprocess.run(
        [sys.executable, str(FILES / "make_dashboard.py")], capture_output=True, check=True
    )
    assert json.loads(made.stdout) == DASHBOARD


def test_every_query_asks_for_metrics_that_exist():
    found = list(queries())
    assert len(found) > 25
    for title, expr in found:
        used = set(re.findall(r"\bheadrace_[a-z0-9_]+", expr))
        assert used, title
        assert used <= sample_names(), title


def test_the_top_row_holds_the_five_numbers_and_no_panels_overlap():
    panels = [p for p in DASHBOARD["panels"] if p["type"] != "row"]
    assert [p["title"] for p in panels[:5]] == [
        "TTFT p95",
        "TPOT p95",
        "Queue depth",
        "Prefix-cache hits",
        "GPU use · DRAM active",
    ]
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
