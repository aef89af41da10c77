"""A plan as one HTML file that needs nothing else: plots, verdict and formulas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from string import Template

from headrace.bench.svg import COLOURS, Axis, Points, plot
from headrace.plan.decision import Decision
from headrace.plan.explain import Step
from headrace.plan.latency import MAX_UTILIZATION, latency_at
from headrace.plan.memory import Memory
from headrace.plan.planner import Plan
from headrace.plan.roofline import decode_step_s
from headrace.plan.split import verdict

_BAR_WIDTH, _BAR_HEIGHT = 560, 130
_LOADS = 40
_BATCHES = 48


def page(plan: Plan, decision: Decision, warnings: Sequence[str], steps: Sequence[Step]) -> str:
    """The whole document."""
    template = Template(
        resources.files("headrace.plan").joinpath("page.html").read_text(encoding="utf-8")
    )
    plots = "".join(
        f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"
        for title, svg in _plots(plan)
    )
    return template.substitute(
        title=escape(f"{plan.ask.model.name} on {plan.ask.gpu.name}"),
        answer=escape(_answer(plan)),
        warnings="".join(f'<p class="warning">{escape(w)}</p>' for w in warnings),
        plots=plots,
        verdict=escape(decision.verdict.replace("_", " ")),
        signals="".join(
            _row(["yes" if s.fires else "no", s.name.replace("_", " "), s.why])
            for s in decision.signals
        ),
        steps="".join(map(_step_row, steps)),
    )


def _answer(plan: Plan) -> str:
    replicas = plan.fleet.replicas if plan.fleet else 1
    how = verdict(plan.replica.split, replicas, plan.ask.gpus_per_host)
    if plan.fleet is None:
        return how
    fleet = plan.fleet
    return (
        f"{fleet.replicas} replicas, {fleet.cards} cards for {fleet.rate_per_s:.4g} requests/s, "
        f"utilisation {fleet.utilization:.0%}: {how}"
    )


def _row(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _step_row(step: Step) -> str:
    return (
        f'<tr><td>{escape(step.name)}</td><td class="number">{escape(step.result)}</td>'
        f'<td>{escape(step.formula)}<br><span class="dim">{escape(step.numbers)}</span></td>'
        f"<td>{escape(step.source)}</td></tr>"
    )


def _plots(plan: Plan) -> Iterator[tuple[str, str]]:
    yield (
        "Time of an output token against the batch",
        plot(
            {"roofline": _roofline_points(plan), "step-time law": _law_points(plan)},
            Axis("sequences decoding"),
            Axis("TPOT, ms"),
        ),
    )
    yield "Memory of one card", _memory_bar(plan.replica.memory)
    yield (
        f"Latency against load, one replica, p{plan.ask.slo.percentile * 100:g}",
        plot(_load_series(plan), Axis("requests a second"), Axis("seconds", log=True)),
    )


def _batch_steps(plan: Plan) -> list[int]:
    most = plan.replica.law.max_num_seqs
    return sorted({max(1, round(most * n / _BATCHES)) for n in range(_BATCHES + 1)})


def _roofline_points(plan: Plan) -> Points:
    replica, context = plan.replica.deployment, plan.ask.traffic.context_tokens
    return [(n, 1e3 * decode_step_s(replica, n, context)) for n in _batch_steps(plan)]


def _law_points(plan: Plan) -> Points:
    law, context = plan.replica.law, plan.ask.traffic.context_tokens
    return [(n, 1e3 * law.step_s(0, n, n * context)) for n in _batch_steps(plan)]


def _load_series(plan: Plan) -> dict[str, Points]:
    """TTFT and TPOT from an idle to a saturated replica; the promises as level lines."""
    ask, replica = plan.ask, plan.replica
    top = replica.saturation_per_s * MAX_UTILIZATION
    ttft: list[tuple[float, float]] = []
    tpot: list[tuple[float, float]] = []
    for n in range(1, _LOADS + 1):
        rate = top * n / _LOADS
        latency = latency_at(replica.law, ask.traffic.at(rate), ask.slo.percentile)
        if latency is not None:
            ttft.append((rate, latency.ttft_s))
            tpot.append((rate, latency.tpot_s))
    series: dict[str, Points] = {"TTFT": ttft, "TPOT": tpot}
    for name, promised in (("TTFT promised", ask.slo.ttft_s), ("TPOT promised", ask.slo.tpot_s)):
        if promised is not None:
            series[name] = [(0.0, promised), (top, promised)]
    return series


def _memory_bar(memory: Memory) -> str:
    """One bar: what is used for what, and what vLLM is told to leave."""
    parts = {
        "weights": memory.weight_bytes,
        "KV cache": max(0, memory.kv_bytes),
        "activations": memory.activation_bytes,
        "runtime": memory.runtime_bytes,
    }
    parts["left free"] = max(0, memory.card_bytes - sum(parts.values()))
    shapes, at = [], 0.0
    for index, (name, size) in enumerate(parts.items()):
        width = _BAR_WIDTH * size / memory.card_bytes
        colour = COLOURS[index % len(COLOURS)] if name != "left free" else "#afb8c1"
        shapes.append(f'<rect x="{at:.1f}" y="4" width="{width:.1f}" height="34" fill="{colour}"/>')
        shapes.append(
            f'<text x="0" y="{56 + 16 * index}" fill="{colour}">'
            f"{escape(name)}: {size / 1e9:.1f} GB</text>"
        )
        at += width
    return f'<svg viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" role="img">' + "".join(shapes) + "</svg>"
