"""A simulated week of autoscaling: requests over the TTFT target and GPU-hours, by strategy.

    python benchmarks/autoscale_week.py [--seed N] [--noise trace|bursts] [--json]
    python benchmarks/autoscale_week.py --extract CSV > benchmarks/azure_hour.json

Load, in busy replicas: a day's shape with two humps, a weekly one, a factor for each day, and
noise; three weeks of history, then the measured week. A replica takes 180 s to start. Waiting is
that of an M/M/c queue with 16 places a replica below full load, and of a fluid backlog above it.

The noise is a recorded hour of conversations, played end to end forwards or backwards at changing
speeds, so that no hour of the week is like another; or, harder, a slow random level and bursts of
up to 35 %. `azure_hour.json` is made from the 2023 conversation trace of the Azure Public Dataset
(github.com/Azure/AzurePublicDataset, CC BY 4.0).
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from headrace.bench import traces
from headrace.control.autoscale.policy import Limits, needed
from headrace.control.autoscale.scaler import Scaler

STEP_S = 15
STARTUP_S = 180
DAY_S, WEEK_S = 86_400, 7 * 86_400
HISTORY_WEEKS = 3
PLACES = 16  # concurrent requests of a replica
SERVICE_S = 8.0  # mean time of a request
TARGET_S = 2.0  # TTFT target
HOUR = Path(__file__).parent / "azure_hour.json"
MINUTE_S = 60  # below that the noise is the queueing model's
PREFILL_TOKENS_S, DECODE_S = 8000.0, 0.03  # of a request alone; only their ratio matters


def shape(time_s: float) -> float:
    """Usual load at a moment of the week: two humps on working days, less at week-ends."""
    hour = time_s % DAY_S / 3600
    hump = math.exp(-(((hour - 11) / 2.6) ** 2)) + 0.9 * math.exp(-(((hour - 16) / 2.8) ** 2))
    weekend = 0.45 if time_s // DAY_S % 7 >= 5 else 1.0
    return 2.0 + 14.0 * weekend * hump


def extract(path: Path) -> list[float]:
    """Requests in flight in each minute of a trace, relative to their mean."""
    spans = [
        (r.at_s, r.at_s + r.job.prompt_tokens / PREFILL_TOKENS_S + r.job.output_tokens * DECODE_S)
        for r in traces.read(path)
    ]
    minutes = [0.0] * int(spans[-1][0] // MINUTE_S)
    for start_s, end_s in spans:
        for minute in range(int(start_s // MINUTE_S), int(end_s // MINUTE_S) + 1):
            if minute < len(minutes):
                begin, end = minute * MINUTE_S, (minute + 1) * MINUTE_S
                minutes[minute] += min(end, end_s) - max(begin, start_s)
    minutes = minutes[1:]  # it begins empty
    mean = sum(minutes) / len(minutes)
    return [round(value / mean, 3) for value in minutes]


def swings(rng: random.Random) -> Iterator[float]:
    """The recorded hour without end, every STEP_S; it ends about where it begins."""
    hour = json.loads(HOUR.read_text())
    while True:
        minutes = hour if rng.random() < 0.5 else hour[::-1]
        speed = rng.uniform(0.7, 1.4)
        steps = max(1, round(MINUTE_S / STEP_S / speed))
        for before, after in pairwise(minutes):
            for i in range(steps):
                yield before + (after - before) * i / steps


def bursts(rng: random.Random) -> Iterator[float]:
    """A slow random level and a burst every six hours or so, every STEP_S."""
    level, burst = 0.0, 0.0
    while True:
        level += -level * STEP_S / 3600 + rng.gauss(0, 0.06) * math.sqrt(2 * STEP_S / 3600)
        burst *= math.exp(-STEP_S / 300)
        if rng.random() < STEP_S / (6 * 3600):
            burst += rng.uniform(0.1, 0.35)
        yield math.exp(level) * (1 + burst)


NOISES = {"trace": swings, "bursts": bursts}


def series(seed: int, weeks: int, noise: str) -> list[float]:
    """Load every STEP_S: the shape, times a factor for the day, times the noise."""
    rng = random.Random(seed)
    loads: list[float] = []
    for i, factor in zip(range(weeks * WEEK_S // STEP_S), NOISES[noise](rng), strict=False):
        if i % (DAY_S // STEP_S) == 0:
            day_factor = math.exp(rng.gauss(0, 0.06))
        loads.append(shape(i * STEP_S) * day_factor * factor)
    return loads


@functools.cache
def waiting_share(load: float, replicas: int) -> float:
    """Share of requests that wait longer than the target: Erlang C, PLACES servers a replica."""
    servers, offered = replicas * PLACES, load * PLACES
    if offered >= servers:
        return 1.0
    inverse = 1.0  # Erlang B by its recursion, inverted to stay finite
    for n in range(1, servers + 1):
        inverse = 1.0 + inverse * n / offered
    erlang_b = 1.0 / inverse
    rho = offered / servers
    erlang_c = erlang_b / (1 - rho + rho * erlang_b)
    return erlang_c * math.exp(-(servers - offered) * TARGET_S / SERVICE_S)


def run(
    loads: list[float], start: int, ask: Callable[[int, int, float], int]
) -> tuple[float, float]:
    """(share over the target, replica-hours) from step `start` on.

    `ask(step, replicas, queued)` says how many replicas there should be.
    """
    ready, starting = needed(loads[start], Limits()) + 1, []
    backlog, missed, total, hours = 0.0, 0.0, 0.0, 0.0
    for step in range(start, len(loads)):
        ready += sum(1 for t in starting if t <= step)
        starting = [t for t in starting if t > step]
        wanted = ask(step, ready + len(starting), backlog * PLACES)
        starting += [step + STARTUP_S // STEP_S] * max(0, wanted - ready - len(starting))
        surplus = max(0, ready + len(starting) - wanted)
        dropped = min(surplus, len(starting))
        starting = starting[: len(starting) - dropped]
        ready -= surplus - dropped
        load = loads[step]
        backlog = max(0.0, backlog + (load - ready) * STEP_S / SERVICE_S)
        late = backlog * SERVICE_S / max(ready, 1) > TARGET_S
        missed += load * (1.0 if late else waiting_share(round(load, 1), max(ready, 1)))
        total += load
        hours += (ready + len(starting)) * STEP_S / 3600
    return missed / total, hours


def strategies(loads: list[float], start: int, limits: Limits) -> dict[str, tuple[float, float]]:
    """Every strategy over the measured week."""
    peak = max(loads[start:])
    ahead = STARTUP_S // STEP_S
    fixed = needed(peak, limits)

    def with_scaler(forecasting: bool) -> Callable[[int, int, float], int]:
        scaler = Scaler(limits, start * STEP_S, startup_s=STARTUP_S)
        if forecasting:
            for i in range(start):
                scaler.observe(i * STEP_S, loads[i])

        def ask(step: int, replicas: int, queued: float) -> int:
            now_s = step * STEP_S
            if forecasting:
                scaler.observe(now_s, loads[step])
            return scaler.decide(now_s, loads[step], queued, replicas).desired

        return ask

    def foresight(step: int, replicas: int, queued: float) -> int:
        return needed(max(loads[step : step + ahead + 1]), limits)

    return {
        "none (sized for the mean)": run(
            loads, start, lambda *_: needed(sum(loads[start:]) / (len(loads) - start), limits)
        ),
        "none (sized for the peak)": run(loads, start, lambda *_: fixed),
        "reactive only": run(loads, start, with_scaler(False)),
        "forecast + reactive": run(loads, start, with_scaler(True)),
        "perfect foresight": run(loads, start, foresight),
    }


def measure(seed: int, noise: str = "trace") -> dict[str, tuple[float, float]]:
    """{strategy: (share over the target, replica-hours)} of one simulated week."""
    loads = series(seed, HISTORY_WEEKS + 1, noise)
    return strategies(loads, HISTORY_WEEKS * WEEK_S // STEP_S, Limits(minimum=1))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", choices=NOISES, default="trace")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--extract", type=Path, metavar="CSV", help="print the hour of a trace")
    args = parser.parse_args()
    if args.extract:
        json.dump(extract(args.extract), sys.stdout)
        return 0
    results = measure(args.seed, args.noise)
    if args.json:
        json.dump(results, sys.stdout)
        return 0
    base = results["perfect foresight"][1]
    for name, (missed, hours) in results.items():
        print(f"{name:28} {missed:8.3%} over target {hours:8.0f} hours {hours / base:6.2f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
