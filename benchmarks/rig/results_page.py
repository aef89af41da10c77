"""docs/results.md from what results.py measured: tables, what they show, what missed its goal."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rig import scenarios

AGREE = 0.15  # simulator and sockets may differ by this much
AHEAD = 0.2  # cost_aware's P99 TTFT is to be that much below the best other policy
OURS = "cost_aware"

HEAD = """# Results of the shipped scenarios

Made by one command; `--only` and runs without `--network` renew parts of it:

    python benchmarks/results.py --traces FOLDER --network --write

Means over {seeds} seeds, in brackets the range. Engines are models with published coefficients, not
GPUs; the router is the real one. Scenario files: `src/headrace/sim/scenarios/`, each of which runs
alone with `headrace sim --scenario NAME` (add `--trace FILE` where it is a trace). The first tenth
of a run is not counted. `max ÷ mean`: requests of the busiest replica to those of the average one.
"""

Runs = dict[str, list[dict[str, Any]]]


def document(kept: dict[str, Any], seeds: int) -> str:
    """The whole page."""
    parts = [HEAD.format(seeds=seeds).strip()]
    for name, own in kept.items():
        parts += [f"## {name}", own["about"]]
        if "sim" in own:
            parts += [
                table(["policy", *(head for head, _ in COLUMNS)], sim_rows(own)),
                sim_note(name, own),
            ]
        if "network" in own:
            parts += list(network_part(own["network"]))
    return "\n\n".join(filter(None, parts)) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def span(values: Sequence[float], scale: float = 1.0, digits: int = 0) -> str:
    """A mean with its range."""
    low, high = min(values) * scale, max(values) * scale
    mean = f"{statistics.fmean(values) * scale:.{digits}f}"
    return mean if low == high else f"{mean} ({low:.{digits}f}–{high:.{digits}f})"


def p(run: dict[str, Any], key: str, quantile: str) -> float:
    """A latency in ms."""
    return float(run[key][quantile]) * 1000


def imbalance(counts: Sequence[int]) -> float:
    """Requests of the busiest replica to the mean."""
    return max(counts) * len(counts) / max(1, sum(counts))


def _latency(key: str, quantile: str) -> Callable[[list[dict[str, Any]], int], str]:
    return lambda runs, requests: span([p(r, key, quantile) for r in runs])


def _balance(runs: list[dict[str, Any]], requests: int) -> str:
    return span([imbalance([x["requests"] for x in r["per_replica"]]) for r in runs], digits=2)


COLUMNS: list[tuple[str, Callable[[list[dict[str, Any]], int], str]]] = [
    ("TTFT p50, ms", _latency("ttft_s", "p50")),
    ("TTFT p99, ms", _latency("ttft_s", "p99")),
    ("TPOT p99, ms", _latency("tpot_s", "p99")),
    ("E2E p99, ms", _latency("e2e_s", "p99")),
    ("hits", lambda runs, _: f"{statistics.fmean(r['prefix_hit_ratio'] for r in runs):.0%}"),
    ("max ÷ mean", _balance),
    ("lost", lambda runs, _: f"{statistics.fmean(r['lost'] for r in runs):.0f}"),
    ("attempts ÷ requests", lambda runs, n: span([r["attempts"] / n for r in runs], digits=2)),
]


def sim_rows(own: dict[str, Any]) -> list[list[str]]:
    """A row a policy."""
    runs: Runs = own["sim"]
    return [
        [policy, *(cell(found, own["requests"]) for _, cell in COLUMNS)]
        for policy, found in runs.items()
    ]


def sim_note(name: str, own: dict[str, Any]) -> str:
    """What the table shows, and how busy the simulator was."""
    runs: Runs = own["sim"]
    said = [NOTES[name](runs)] if name in NOTES else []
    p99 = {policy: level(runs, policy, "p99") for policy in runs}
    others = {k: v for k, v in p99.items() if k != OURS}
    if others:
        best = min(others, key=lambda k: others[k])
        below = 1 - p99[OURS] / others[best]
        word = "below" if below >= 0 else "above"
        said.append(f"P99 TTFT of `{OURS}`: {abs(below):.0%} {word} the next best, `{best}`.")
        if name.startswith("mooncake") and below < AHEAD:
            said.append(f"The goal of {AHEAD:.0%} is missed.")
    return " ".join([*said, f"(Simulator: {own['sim_cpu_ratio']:.0%} of a core.)"])


def level(runs: Runs, policy: str, quantile: str) -> float:
    """TTFT in ms, mean over the seeds."""
    return statistics.fmean(p(run, "ttft_s", quantile) for run in runs[policy])


def _classic(runs: Runs) -> str:
    p50, p99 = (
        level(runs, "round_robin", q) / level(runs, "least_load", q) for q in ("p50", "p99")
    )
    return (
        "The classic table of this fleet (P50/P99: round robin 420/3,200 ms, least load 380/1,800, "
        "least load with a random choice 390/1,600) has round robin at 1.1 and 1.8 to 2.0 × least "
        f"load; here, where `least_load` chooses at random among the best, {p50:.1f} and "
        f"{p99:.1f} ×. The order of the P99 is the same."
    )


def _slow(runs: Runs) -> str:
    robin, ours = (level(runs, policy, "p99") / 1000 for policy in ("round_robin", OURS))
    return f"A fixed rotation feeds the slow replica on: P99 {robin:.1f} s; feedback: {ours:.2f} s."


def _affinity(runs: Runs) -> str:
    share = level(runs, OURS, "p50") / level(runs, "random", "p50")
    counts = [[x["requests"] for x in run["per_replica"]] for run in runs[OURS]]
    most = statistics.fmean(map(imbalance, counts))
    return (
        f"Median TTFT is {share:.2f} × that of random placement. The price is balance: the busiest "
        f"replica gets {most:.2f} × the mean."
    )


NOTES: dict[str, Callable[[Runs], str]] = {
    "a10-classic": _classic,
    "slow-node": _slow,
    "mid-slow": _slow,
    "prefix-affinity": _affinity,
}


def network_part(network: dict[str, Any]) -> Iterator[str]:
    """Simulator and sockets side by side."""
    yield (
        f"The first {network['requests']} requests in real time: `headrace mock`, the gateway and "
        "`headrace bench` on two cores, beside the simulator with the same requests (mean of five "
        "runs with 0.5 % noise in step times). Times in ms, CPU in shares of a core."
    )
    head = ["policy", "p50 sim", "p50 sockets", "p99 sim", "p99 sockets", "sockets ÷ sim, p50, p99"]
    yield table([*head, "failed", "CPU: mock", "harness", "gateway"], list(network_rows(network)))
    documents = [pair["net"] for runs in network["policies"].values() for pair in runs]
    text = f"{network['at_once']} runs shared the two cores." if network["at_once"] > 1 else ""
    doubts = scenarios.doubts(documents, network["at_once"])
    yield f"{text} {'Doubtful: ' + '; '.join(doubts) + '.' if doubts else ''}".strip()


def network_rows(network: dict[str, Any]) -> Iterator[list[str]]:
    for policy, pairs in network["policies"].items():
        net = [x["net"] for x in pairs]
        row = [policy]
        for quantile in ("p50", "p99"):
            row.append(span([expected(x, quantile) for x in pairs]))
            row.append(span([p(r, "ttft_s", quantile) for r in net]))
        row.append(", ".join(f"{ratio:.2f}" for ratio in ratios(pairs)))
        row.append(str(sum(r["requests"]["failed"] + r["requests"]["rejected"] for r in net)))
        row.append(f"{max(r['rig']['mock_cpu_ratio'] for r in net):.0%}")
        row.append(f"{max(r['rig']['cpu_ratio'] for r in net):.0%}")
        yield [*row, f"{max(r['gateway']['cpu_ratio'] for r in net):.0%}"]


def expected(pair: dict[str, Any], quantile: str) -> float:
    """TTFT in ms of the simulator, mean over its runs with one seed's traffic."""
    return statistics.fmean(p(run, "ttft_s", quantile) for run in pair["sims"])


def ratios(pairs: list[dict[str, Any]]) -> list[float]:
    """Mean over seeds on sockets to that of the simulator, P50 and P99 TTFT."""
    return [
        statistics.fmean(p(x["net"], "ttft_s", q) for x in pairs)
        / statistics.fmean(expected(x, q) for x in pairs)
        for q in ("p50", "p99")
    ]


def differences(kept: dict[str, Any]) -> list[str]:
    """Where simulator and sockets are further apart than agreed."""
    found = []
    for name, own in kept.items():
        for policy, pairs in own.get("network", {}).get("policies", {}).items():
            for quantile, ratio in zip(("P50", "P99"), ratios(pairs), strict=True):
                if abs(ratio - 1) > AGREE:
                    found.append(
                        f"{name}, {policy}: {quantile} on sockets is {ratio:.2f} × the sim"
                    )
    return found
