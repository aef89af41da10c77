"""`python -m headrace.observe.docs` prints docs/metrics.md, made from the metric table."""

from __future__ import annotations

from headrace.observe.table import METRICS, PREFIX

HEAD = """# Metrics

Made from `src/headrace/observe/table.py` by `python -m headrace.observe.docs > docs/metrics.md`.
Served at `GET /metrics` of the admin port, as text or OpenMetrics by `Accept`. One page answers for
all processes; counters survive the death of a process. Label values never come from unknown client
input: an unknown model, path or method is `other`. A missing sample means "unknown", never zero.

| name | kind | labels | meaning |
|---|---|---|---|
"""


def full_name(name: str, kind: str) -> str:
    """The name of the family's main sample."""
    return PREFIX + name + ("_total" if kind == "counter" else "")


def render() -> str:
    """The whole document."""
    rows = [
        f"| `{full_name(m.name, m.kind)}` | {m.kind} | {', '.join(m.labels) or '–'} | {m.help} |\n"
        for m in METRICS
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    print(render(), end="")
