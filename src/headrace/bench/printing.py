"""Results as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.bench.report import capacity_text, milliseconds, percent


def print_bench(document: dict[str, Any]) -> None:
    """The figures of a run on stdout."""
    console = Console(highlight=False)
    requests = document["requests"]
    console.print(
        f"{document['url']}: {document['load']}, {document['duration_s']:.1f} s", markup=False
    )
    console.print(", ".join(f"{number} {name}" for name, number in requests.items()))
    if document["errors"]:
        kinds = ", ".join(f"{n} × {kind}" for kind, n in document["errors"].items())
        console.print(f"errors: {kinds}", markup=False)
    console.print(_latency_table(document))
    console.print(
        f"{document['requests_per_s']:.2f} requests/s, "
        f"{document['output_tokens_per_s']:.0f} output tokens/s, "
        f"goodput {document['goodput_per_s']:.2f}/s, "
        f"prefix hits {percent(document['prefix_hit_ratio'])}"
    )
    if document["per_replica"]:
        console.print(_replica_table(document["per_replica"]))
    if capacity := document.get("capacity"):
        console.print(f"capacity: {capacity_text(capacity)}")
    console.print(f"the load harness used {document['rig']['cpu_ratio']:.0%} of a core")


def _latency_table(document: dict[str, Any]) -> Table:
    table = Table("ms", *(name for name in document["ttft_s"]))
    for key in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        table.add_row(key[:-2].upper(), *map(milliseconds, document[key].values()))
    return table


def _replica_table(replicas: dict[str, dict[str, Any]]) -> Table:
    table = Table("replica", "requests", "TTFT p50, ms")
    for name, row in replicas.items():
        table.add_row(name, str(row["requests"]), milliseconds(row["ttft_p50_s"]))
    return table


def print_qualify(document: dict[str, Any]) -> None:
    """The four numbers and the verdict on stdout."""
    console = Console(highlight=False)
    together = document["throughput_at_10"]
    table = Table("of a single replica", "measured")
    table.add_row("TTFT of a single request", f"{milliseconds(document['ttft_s'])} ms")
    table.add_row("tokens/s of a single request", f"{document['tokens_per_s']:.1f}")
    table.add_row(
        "at ten at once",
        f"{together['tokens_per_s']:.0f} tokens/s, "
        f"P95 TTFT {milliseconds(together['ttft_p95_s'])} ms",
    )
    bound = " or more" if document["max_batch_is_lower_bound"] else ""
    table.add_row("largest batch that fits", f"{document['max_batch']}{bound}")
    console.print(table)
    console.print(f"verdict: {document['verdict']}")
    for reason in document["why"]:
        console.print(f"  {reason}", markup=False)
