"""Makes headrace.json: `python deploy/grafana/make_dashboard.py > deploy/grafana/headrace.json`."""

from __future__ import annotations

import json
import sys
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
MODEL = 'model=~"$model"'
REPLICA = 'replica=~"$replica"'
GREEN, ORANGE, RED = "green", "orange", "red"


def target(expr: str, legend: str = "", *, kind: str = "time_series") -> dict[str, Any]:
    """One query of a panel."""
    return {"datasource": SOURCE, "expr": expr, "legendFormat": legend, "format": kind}


def panel(kind: str, title: str, unit: str, targets: list[dict[str, Any]], **more: Any) -> dict:
    """A panel without its place; steps are (colour, from) pairs."""
    steps = [{"color": c, "value": v} for c, v in more.pop("steps", [(GREEN, None)])]
    return {
        "type": kind,
        "title": title,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {
            "defaults": {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": more,
    }


def quantile(q: float, name: str, by: str = "le", labels: str = MODEL) -> str:
    """A percentile over the dashboard's rate interval."""
    rate = f"rate(headrace_{name}_bucket{{{labels}}}[$__rate_interval])"
    return f"histogram_quantile({q}, sum by ({by}) ({rate}))"


def five_numbers() -> list[dict[str, Any]]:
    """The top row: whether users wait, and why."""
    waiting = f"sum(headrace_replica_queue_depth{{{REPLICA}}}) + sum(headrace_queue_depth)"
    return [
        panel(
            "stat",
            "TTFT p95",
            "s",
            [target(quantile(0.95, "ttft_seconds"))],
            steps=[(GREEN, None), (ORANGE, 1), (RED, 3)],
        ),
        panel(
            "stat",
            "TPOT p95",
            "s",
            [target(quantile(0.95, "tpot_seconds"))],
            steps=[(GREEN, None), (ORANGE, 0.05), (RED, 0.1)],
        ),
        panel(
            "stat",
            "Queue depth",
            "short",
            [target(waiting)],
            steps=[(GREEN, None), (ORANGE, 8), (RED, 64)],
        ),
        panel(
            "stat",
            "Prefix-cache hits",
            "percentunit",
            [target(f"avg(headrace_replica_prefix_hit_ratio{{{REPLICA}}})")],
            steps=[(RED, None), (ORANGE, 0.2), (GREEN, 0.4)],
        ),
        panel(
            "stat",
            "GPU use · DRAM active",
            "percentunit",
            [
                target(f"avg(headrace_replica_gpu_util{{{REPLICA}}})", "use"),
                target(f"avg(headrace_replica_gpu_dram_active{{{REPLICA}}})", "DRAM"),
            ],
            steps=[(GREEN, None), (ORANGE, 0.9), (RED, 0.98)],
        ),
    ]


def latency() -> list[dict[str, Any]]:
    """Percentiles over time and heat maps by replica."""
    heat = f"sum by (le) (increase(headrace_ttft_seconds_bucket{{{MODEL}}}[$__rate_interval]))"
    itl = f"sum by (le) (increase(headrace_itl_seconds_bucket{{{MODEL}}}[$__rate_interval]))"
    by_replica = quantile(0.95, "ttft_seconds", "replica, le", f"{MODEL}, {REPLICA}")
    percentiles = [
        target(quantile(q, "ttft_seconds"), f"p{q * 100:.0f}") for q in (0.5, 0.95, 0.99)
    ]
    return [
        panel("timeseries", "TTFT", "s", percentiles),
        panel("timeseries", "TTFT p95 by replica", "s", [target(by_replica, "{{replica}}")]),
        panel("heatmap", "TTFT, all requests", "s", [target(heat, "{{le}}", kind="heatmap")]),
        panel("heatmap", "Time between tokens", "s", [target(itl, "{{le}}", kind="heatmap")]),
    ]


def replicas() -> list[dict[str, Any]]:
    """Load and health of each replica."""
    states = f"headrace_replica_state{{{REPLICA}}} == 1"
    rows = (
        ("In flight", "short", f"sum by (replica) (headrace_replica_inflight{{{REPLICA}}})"),
        ("Engine queue", "short", f"headrace_replica_queue_depth{{{REPLICA}}}"),
        ("KV cache in use", "percentunit", f"headrace_replica_kv_usage{{{REPLICA}}}"),
        ("Weight", "short", f"headrace_replica_weight{{{REPLICA}}}"),
        ("Age of engine metrics", "s", f"headrace_replica_metrics_age_seconds{{{REPLICA}}}"),
    )
    panels = [
        panel("timeseries", title, unit, [target(expr, "{{replica}}")])
        for title, unit, expr in rows
    ]
    timeline = panel("state-timeline", "Health", "short", [target(states, "{{replica}} {{state}}")])
    return [*panels, timeline]


def gateway() -> list[dict[str, Any]]:
    """Decisions, refusals, retries, cost of the gateway itself."""
    rate = "[$__rate_interval]"
    rows = (
        ("Requests", "reqps", f"sum by (outcome) (rate(headrace_requests_total{{{MODEL}}}{rate}))"),
        ("Decisions", "reqps", f"sum by (policy, reason) (rate(headrace_decisions_total{rate}))"),
        ("Rejected", "reqps", f"sum by (reason) (rate(headrace_rejected_total{rate}))"),
        ("Retries", "reqps", f"sum by (reason) (rate(headrace_retries_total{rate}))"),
        ("Retry budget", "short", "headrace_retry_budget_balance"),
        ("Replicas wanted", "short", f"headrace_desired_replicas{{{MODEL}}}"),
    )
    panels = [panel("timeseries", title, unit, [target(expr)]) for title, unit, expr in rows]
    overhead = quantile(0.99, "overhead_seconds", labels="")
    return [*panels, panel("timeseries", "Added by the gateway, p99", "s", [target(overhead)])]


def gpus() -> list[dict[str, Any]]:
    """What the DCGM exporter says."""
    rows = (
        ("GPU use", "percentunit", "headrace_replica_gpu_util"),
        ("DRAM active", "percentunit", "headrace_replica_gpu_dram_active"),
        ("Temperature", "celsius", "headrace_replica_gpu_temp_celsius"),
        ("NVLink", "Bps", "headrace_replica_nvlink_bytes_per_second"),
        ("Last Xid", "short", "headrace_replica_gpu_xid"),
        ("Double-bit ECC errors", "short", "headrace_replica_gpu_ecc_dbe_total"),
    )
    legend = "{{replica}} GPU {{gpu}}"
    return [
        panel("timeseries", title, unit, [target(f"{name}{{{REPLICA}}}", legend)])
        for title, unit, name in rows
    ]


def place(panels: list[dict[str, Any]], width: int, height: int, top: int) -> int:
    """Set the panels in rows of 24 columns; returns the next free line."""
    per_row = 24 // width
    for i, entry in enumerate(panels):
        x, line = (i % per_row) * width, i // per_row
        entry["gridPos"] = {"x": x, "y": top + line * height, "w": width, "h": height}
    return top + -(-len(panels) // per_row) * height


def variable(name: str, query: str) -> dict[str, Any]:
    """A multi-value variable with `All`."""
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """The whole document."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, group, width, height in (
        ("The five numbers", five_numbers(), 4, 5),
        ("Latency", latency(), 12, 8),
        ("Replicas", replicas(), 8, 7),
        ("Gateway", gateway(), 6, 7),
        ("GPUs", gpus(), 8, 7),
    ):
        head = {"type": "row", "title": title, "collapsed": False, "panels": []}
        head["gridPos"] = {"x": 0, "y": top, "w": 24, "h": 1}
        panels.append(head)
        top = place(group, width, height, top + 1)
        panels += group
    for number, entry in enumerate(panels, 1):
        entry["id"] = number
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return {
        "title": "headrace",
        "uid": "headrace",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "tags": ["headrace", "llm"],
        "templating": {
            "list": [
                source,
                variable("model", "label_values(headrace_requests_total, model)"),
                variable("replica", "label_values(headrace_replica_state, replica)"),
            ]
        },
        "panels": panels,
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    sys.stdout.write("\n")
