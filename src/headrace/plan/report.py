"""A plan on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.plan.compare import Row
from headrace.plan.decision import Decision
from headrace.plan.document import PERCENTILES
from headrace.plan.explain import Step
from headrace.plan.memory import kv_bytes_per_token, weight_bytes
from headrace.plan.models import active_params, total_params
from headrace.plan.planner import Plan
from headrace.plan.replica import advised_utilization, batch_steps
from headrace.plan.roofline import crossover_batch, decode_ceiling_tokens_per_s
from headrace.plan.split import verdict

# A pipe has no width of its own.
_PLAIN_WIDTH = 100
_VERDICTS = {
    "single_card": "one card is enough",
    "multi_card": "several cards of one machine",
    "cluster": "several machines",
}


def print_plan(plan: Plan, decision: Decision) -> None:
    """The report on stdout."""
    console = _console()
    ask = plan.ask
    split = plan.replica.split
    console.print(
        f"[bold]{escape(ask.model.name)}[/] in {ask.weights_dtype} on [bold]{ask.gpu.name}[/]: "
        f"{split.gpus} card{'s' * (split.gpus > 1)} a replica"
    )
    if plan.fleet:
        console.print(
            f"[bold]{plan.fleet.replicas} replica{'s' * (plan.fleet.replicas > 1)}, "
            f"{plan.fleet.cards} card{'s' * (plan.fleet.cards > 1)}[/] for "
            f"{plan.fleet.rate_per_s:.4g} requests/s ({_promises(plan)})"
        )
    replicas = plan.fleet.replicas if plan.fleet else 1
    console.print(verdict(plan.replica.split, replicas, ask.gpus_per_host))
    console.print(_replica_table(plan))
    console.print(_batch_table(plan))
    if plan.fleet:
        console.print(_fleet_table(plan))
    console.print(_decision_table(decision))


def print_explanation(steps: Sequence[Step]) -> None:
    """The formulas on stdout."""
    console = _console()
    for step in steps:
        console.print(f"[bold]{escape(step.name)}[/] = {escape(step.result)}")
        console.print(f"    {escape(step.formula)}")
        console.print(f"    {escape(step.numbers)}", style="dim")
        if step.source:
            console.print(f"    source: {escape(step.source)}", style="dim")


def print_comparison(rows: Sequence[Row]) -> None:
    """The ranking on stdout."""
    table = Table(box=box.SIMPLE)
    for name in ("", "card", "split", "replicas", "cards", "price/h", "TTFT", "TPOT", "margin"):
        table.add_column(name, justify="left" if name in ("card", "split") else "right")
    for place, row in enumerate((r for r in rows if r.feasible), start=1):
        table.add_row(str(place), row.gpu, *_comparison_cells(row))
    console = _console()
    console.print(table)
    for row in rows:
        if not row.feasible:
            console.print(f"[red]{escape(row.gpu)}[/]: {escape(row.why)}")


def _comparison_cells(row: Row) -> list[str]:
    assert row.plan is not None and row.plan.fleet is not None
    split, fleet = row.plan.replica.split, row.plan.fleet
    return [
        f"tp {split.tp}" + (f" pp {split.pp}" if split.pp > 1 else ""),
        str(fleet.replicas),
        str(fleet.cards),
        "–" if row.price_per_hour is None else f"{row.price_per_hour:.2f}",
        seconds(fleet.latency.ttft_s),
        seconds(fleet.latency.tpot_s),
        "–" if row.margin_ratio is None else f"{row.margin_ratio:.0%}",
    ]


def _console() -> Console:
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False)


def _promises(plan: Plan) -> str:
    slo = plan.ask.slo
    promised = [
        f"{name} p{slo.percentile * 100:g} ≤ {seconds(value)}"
        for name, value in (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s))
        if value is not None
    ]
    assumed = ", assumed" if promised and plan.ask.slo_assumed else ""
    return (", ".join(promised) or "no SLO") + assumed


def seconds(value: float) -> str:
    """A duration in the unit that reads best."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _plain_table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False)
    table.add_column(min_width=26)
    table.add_column()
    return table


def _figures_table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, min_width=len(title) + 2)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _replica_table(plan: Plan) -> Table:
    ask, replica = plan.ask, plan.replica
    model, memory = ask.model, replica.memory
    ceiling = decode_ceiling_tokens_per_s(replica.deployment)
    table = _plain_table("One replica")
    active = active_params(model)
    of_experts = f", {active / 1e9:.1f} G active a token" if model.experts else ""
    table.add_row(
        "weights",
        f"{weight_bytes(model, ask.weights_dtype) / 1e9:.1f} GB "
        f"({total_params(model) / 1e9:.1f} G parameters{of_experts})",
    )
    table.add_row(
        "memory of a card",
        f"{memory.card_bytes / 1e9:.1f} GB · {memory.utilization:.2f} = weights "
        f"{memory.weight_bytes / 1e9:.1f} + KV cache {memory.kv_bytes / 1e9:.1f} + activations "
        f"{memory.activation_bytes / 1e9:.1f} + runtime {memory.runtime_bytes / 1e9:.1f}",
    )
    table.add_row(
        "KV cache",
        f"{memory.kv_capacity_tokens} tokens at "
        f"{kv_bytes_per_token(model, ask.kv_dtype) / 1024:.1f} KiB ({model.attention}, "
        f"{ask.kv_dtype}): {memory.kv_capacity_tokens // ask.context_tokens} sequences of "
        f"{ask.context_tokens}",
    )
    table.add_row("max_num_seqs", str(replica.law.max_num_seqs))
    table.add_row("gpu_memory_utilization", f"{advised_utilization(ask, memory):.2f}")
    table.add_row(
        "prefill",
        f"{ask.traffic.uncached_tokens / replica.prefill_s:.0f} tokens/s: "
        f"{seconds(replica.prefill_s)} for {ask.traffic.uncached_tokens:.0f} tokens",
    )
    table.add_row(
        "decode, one stream",
        f"{1 / replica.single_step_s:.0f} tokens/s (bandwidth ceiling {ceiling:.0f})",
    )
    table.add_row(
        "capacity",
        f"{replica.capacity_per_s:.2f} requests/s of {ask.traffic.input_tokens:.0f} + "
        f"{ask.traffic.output_tokens:.0f} tokens (saturates at {replica.saturation_per_s:.2f})",
    )
    return table


def _batch_table(plan: Plan) -> Table:
    """TPOT against batch, up to what the cache holds."""
    ask, replica = plan.ask, plan.replica
    cross = crossover_batch(replica.deployment)
    table = _figures_table(
        f"Batch (compute-bound from {cross:.0f} sequences)",
        ("sequences", "TPOT", "tokens/s a stream", "tokens/s in all"),
    )
    for batch, step_s in batch_steps(replica, ask):
        table.add_row(str(batch), seconds(step_s), f"{1 / step_s:.0f}", f"{batch / step_s:.0f}")
    return table


def _fleet_table(plan: Plan) -> Table:
    assert plan.fleet is not None
    fleet = plan.fleet
    table = _figures_table(
        f"Fleet at {fleet.rate_per_s / fleet.replicas:.2f} requests/s a replica, utilisation "
        f"{fleet.utilization:.0%}",
        ("percentile", "TTFT", "TPOT"),
    )
    for percentile in PERCENTILES:
        latency = plan.latency(percentile)
        table.add_row(f"p{percentile * 100:g}", seconds(latency.ttft_s), seconds(latency.tpot_s))
    return table


def _decision_table(decision: Decision) -> Table:
    table = Table(
        title=f"Verdict: {decision.verdict} ({_VERDICTS[decision.verdict]})",
        title_justify="left",
        box=box.SIMPLE,
        show_header=False,
    )
    for signal in decision.signals:
        mark = "[red]yes[/]" if signal.fires else "no"
        table.add_row(mark, signal.name.replace("_", " "), escape(signal.why))
    return table
