"""A run as one HTML file that needs nothing else: figures and plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from headrace.bench.samples import Record, Sample
from headrace.bench.summary import distribution
from headrace.bench.svg import Axis, Points, plot

PERCENTILES = (0, 10, 25, 50, 75, 90, 95, 99, 99.9)
SECONDS = Axis("seconds", log=True)
LOAD_GROUPS = 10


def write(path: Path, document: dict[str, Any], record: Record) -> None:
    """Write the report of a `headrace bench` document; raises OSError."""
    template = Template((Path(__file__).parent / "report.html").read_text(encoding="utf-8"))
    plots = "".join(
        f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"
        for title, svg in _plots(document, record)
    )
    page = template.substitute(
        title=escape(f"headrace bench {document['url']}"),
        facts=_rows(_facts(document)),
        latencies=_latency_rows(document),
        replicas=_replica_rows(document["per_replica"]),
        warnings="".join(f"<p class='warning'>{escape(w)}</p>" for w in document["warnings"]),
        plots=plots,
    )
    path.write_text(page, encoding="utf-8")


def _plots(document: dict[str, Any], record: Record) -> list[tuple[str, str]]:
    time_axis = Axis("seconds from the start")
    samples = sorted(record.samples, key=lambda s: s.due_s)
    ok = [s for s in samples if s.ok]
    found = [
        ("Latency by percentile", _percentile_plot(ok, record)),
        ("Requests under way, and those still without a first token", plot(
            {
                "in flight": [(at, n) for at, n, _ in record.levels],
                "awaiting the first token": [(at, n) for at, _, n in record.levels],
            },
            time_axis, Axis("requests"),
        )),
        ("TTFT over time", plot(
            {"TTFT": [(s.due_s, s.ttft_s) for s in ok if s.ttft_s is not None]}, time_axis, SECONDS
        )),
        ("Latency against load", _load_plot(ok, record)),
    ]  # fmt: skip
    if capacity := document.get("capacity"):
        found.append(("TTFT at each rate tried", _capacity_plot(capacity["steps"])))
    return found


def _percentile_plot(ok: Sequence[Sample], record: Record) -> str:
    """Percentiles on a scale that widens towards the tail, where the trouble is."""

    def place(percentile: float) -> float:
        return -math.log10(1 - percentile / 100)

    def curve(values: Sequence[float]) -> Points:
        ordered = sorted(values)
        last = len(ordered) - 1
        shown = [p for p in PERCENTILES if ordered and (100 - p) * len(ordered) >= 100]
        return [(place(p), ordered[round(last * p / 100)]) for p in shown]

    measures: dict[str, Callable[[Sample], float | None]] = {
        "TTFT": lambda s: s.ttft_s,
        "TPOT": lambda s: s.tpot_s,
        "E2E": lambda s: s.e2e_s,
    }
    series = {n: curve([v for s in ok if (v := f(s)) is not None]) for n, f in measures.items()}
    series["ITL"] = curve(record.itl_s)
    ticks = [(place(p), f"{p:g}") for p in (0, 50, 90, 99, 99.9)]
    return plot(series, Axis("percentile", ticks=ticks), SECONDS)


def _load_plot(ok: Sequence[Sample], record: Record) -> str:
    """TTFT percentiles of groups of requests that met a like number in flight when sent."""
    level_at = {at: n for at, n, _ in record.levels}
    met = sorted((level_at.get(s.sent_s, 0), s.ttft_s) for s in ok if s.ttft_s is not None)
    size = max(1, math.ceil(len(met) / LOAD_GROUPS))
    medians, tails = [], []
    for start in range(0, len(met), size):
        group = met[start : start + size]
        figures = distribution(ttft for _, ttft in group)
        load = sum(n for n, _ in group) / len(group)
        medians.append((load, figures["p50"] or 0.0))
        tails.append((load, figures["p99"] or 0.0))
    axis = Axis("requests in flight when sent")
    return plot({"TTFT p50": medians, "TTFT p99": tails}, axis, SECONDS, marks=True)


def _capacity_plot(steps: Sequence[dict[str, Any]]) -> str:
    ordered = sorted(steps, key=lambda s: float(s["rate"]))
    series = {
        name: [(s["rate"], s[key]) for s in ordered if s[key] is not None]
        for name, key in (("TTFT p50", "ttft_p50_s"), ("TTFT p99", "ttft_p99_s"))
    }
    return plot(series, Axis("requests per second"), SECONDS, marks=True)


def _facts(document: dict[str, Any]) -> dict[str, str]:
    requests, rig = document["requests"], document["rig"]
    counts = ", ".join(f"{number} {name}" for name, number in requests.items())
    errors = ", ".join(f"{number} × {kind}" for kind, number in document["errors"].items())
    found = {
        "load": document["load"],
        "requests": counts,
        "errors": errors or "none",
        "duration": f"{document['duration_s']:.1f} s",
        "throughput": f"{document['requests_per_s']:.2f} requests/s, "
        f"{document['output_tokens_per_s']:.0f} output tokens/s",
        "goodput": f"{document['goodput_per_s']:.2f} requests/s",
        "prefix hits": percent(document["prefix_hit_ratio"]),
        "load harness": f"{rig['cpu_ratio']:.0%} of a core",
    }
    if capacity := document.get("capacity"):
        found["capacity"] = capacity_text(capacity)
    return found


def capacity_text(capacity: dict[str, Any]) -> str:
    """The knee and the rate to plan with, in words."""
    if capacity["rate"] is None:
        return "none of the rates tried holds the objective"
    return f"{capacity['rate']:.2f} requests/s, plan with 80 %: {capacity['safe_rate']:.2f}"


def percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio:.1%}"


def _rows(facts: dict[str, str]) -> str:
    return "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in facts.items())


def _latency_rows(document: dict[str, Any]) -> str:
    rows = []
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        cells = "".join(f"<td>{milliseconds(value)}</td>" for value in document[name].values())
        rows.append(f"<tr><th>{name[:-2].upper()}, ms</th>{cells}</tr>")
    return "".join(rows)


def _replica_rows(replicas: dict[str, dict[str, Any]]) -> str:
    return "".join(
        f"<tr><th>{escape(name)}</th><td>{row['requests']}</td>"
        f"<td>{milliseconds(row['ttft_p50_s'])}</td></tr>"
        for name, row in replicas.items()
    )


def milliseconds(seconds: float | None) -> str:
    """A time for people, `–` if unknown."""
    return "–" if seconds is None else f"{seconds * 1000:.1f}"
