"""What a simulation gave, for people: a table in the terminal, a self-contained page with plots."""

from __future__ import annotations

import html as markup
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.bench.report import milliseconds, percent
from headrace.bench.svg import Axis, plot
from headrace.sim.fleet import Outcome

COLUMNS = ("policy", "TTFT p50", "TTFT p99", "TPOT p99", "E2E p99", "hits", "rejected", "lost")
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>:root{{color-scheme:light dark}}body{{font:15px/1.5 system-ui,sans-serif;max-width:900px;
margin:24px auto;padding:0 16px}}table{{border-collapse:collapse}}td,th{{padding:4px 14px 4px 0;
text-align:right;border-bottom:1px solid #8884}}td:first-child,th:first-child{{text-align:left}}
svg{{max-width:100%;height:auto}}</style>
<h1>{title}</h1><p>{about}</p>{table}{plots}</html>
"""


def spread(run: dict[str, Any]) -> float:
    """Largest share of requests over the smallest, by replica; 0 when one got none."""
    counts = [r["requests"] for r in run["per_replica"]]
    return max(counts) / min(counts) if min(counts) else 0.0


def rows(document: dict[str, Any]) -> list[list[str]]:
    """The figures of every run as text."""
    return [
        [
            run["policy"],
            milliseconds(run["ttft_s"]["p50"]),
            milliseconds(run["ttft_s"]["p99"]),
            milliseconds(run["tpot_s"]["p99"]),
            milliseconds(run["e2e_s"]["p99"]),
            percent(run["prefix_hit_ratio"]),
            str(run["rejected"]),
            str(run["lost"]),
        ]
        for run in document["runs"]
    ]


def table(document: dict[str, Any]) -> None:
    """Print the table."""
    scenario = document["scenario"]
    shown = Table(title=f"{scenario['name']}, seed {document['seed']}", caption=scenario["about"])
    for number, name in enumerate(COLUMNS):
        shown.add_column(name, justify="left" if number == 0 else "right")
    for row in rows(document):
        shown.add_row(*row)
    Console().print(shown)


def html(document: dict[str, Any], outcomes: dict[str, Outcome]) -> str:
    """The page; names are escaped, nothing is loaded from elsewhere."""
    scenario = document["scenario"]
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{markup.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(document)
    )
    plots = "".join(
        f"<h2>{title}</h2>{picture}"
        for title, picture in (
            ("TTFT by percentile", _percentiles(outcomes)),
            ("TTFT over time, p95 of each hundredth of the run", _over_time(outcomes)),
        )
    )
    return PAGE.format(
        title=markup.escape(f"headrace sim: {scenario['name']}"),
        about=markup.escape(scenario["about"]),
        table=f"<table><tr>{head}</tr>{body}</table>",
        plots=plots,
    )


def _percentiles(outcomes: dict[str, Outcome]) -> str:
    series = {}
    for policy, outcome in outcomes.items():
        ordered = sorted(outcome.ttft_s)
        if ordered:
            last = len(ordered) - 1
            series[policy] = [(q / 2, ordered[round(last * q / 200)]) for q in range(201)]
    return plot(series, Axis("percentile"), Axis("TTFT, s", log=True)) if series else ""


def _over_time(outcomes: dict[str, Outcome]) -> str:
    series = {}
    for policy, outcome in outcomes.items():
        pairs = sorted(zip(outcome.started_s, outcome.ttft_s, strict=True))
        size = max(len(pairs) // 100, 1)
        points = []
        for start in range(0, len(pairs), size):
            part = sorted(ttft for _, ttft in pairs[start : start + size])
            points.append((pairs[start][0], part[int(0.95 * (len(part) - 1))]))
        if points:
            series[policy] = points
    return plot(series, Axis("time, s"), Axis("TTFT, s", log=True)) if series else ""
