"""Put load on an OpenAI-compatible URL and measure what its users would feel.

`headrace bench URL` sends requests at a rate (open loop: latency counts from the time a request was
due) or keeps a number under way (closed loop). `headrace bench qualify URL` finds the four numbers
to know about a single replica before any architecture.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import uvloop

from headrace import __version__
from headrace.bench import arrivals, capacity, options, printing, progress, qualify, report
from headrace.bench.load import Run, Target
from headrace.bench.open_files import raise_open_files
from headrace.bench.options import Plan
from headrace.bench.scenario import ScenarioPlan
from headrace.bench.summary import Objective, summarise, warnings
from headrace.bench.traces import TraceError
from headrace.sim.scenario import ScenarioError

EXAMPLE = "headrace bench http://127.0.0.1:30000 --rate 20 --duration 30 --dataset shared-prefix"

DEFAULT_SLO_TTFT_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `headrace bench`."""
    add = parser.add_argument
    add("target", nargs="+", metavar="URL", help="the server; or: qualify URL")
    add("--model", help="model to ask for (default: the first the server lists)")
    add("--api-key", help="sent as a bearer token")
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--rate", type=_positive, metavar="R", help="requests per second, open loop")
    load.add_argument(
        "--concurrency", type=_count, metavar="C", help="requests at once, closed loop"
    )
    add(
        "--arrivals",
        choices=arrivals.NAMES,
        default="poisson",
        help="open loop: when (default: poisson)",
    )
    add(
        "--duration",
        type=_positive,
        metavar="S",
        help="how long to send (default: 30, or the trace)",
    )
    add("--requests", type=_count, metavar="N", help="how many to send at most")
    add(
        "--timeout",
        type=_positive,
        default=600.0,
        metavar="S",
        help="of one request (default: 600)",
    )
    add(
        "--no-ignore-eos",
        action="store_true",
        help="let the model stop early; some servers need it",
    )
    _add_dataset(parser.add_argument_group("dataset"))
    scenario = parser.add_argument_group("scenario")
    scenario.add_argument(
        "--scenario",
        metavar="NAME|FILE",
        help="load, data set and faults of a scenario of `headrace sim`, for a fleet of "
        "`headrace mock --scenario`; --rate, --requests, --duration and a trace replace its own",
    )
    scenario.add_argument(
        "--control", metavar="URL", help="a port of the mock, for the scenario's faults"
    )
    goal = parser.add_argument_group("objective")
    goal.add_argument("--slo-ttft", type=_positive, metavar="S", help="time to first token")
    goal.add_argument("--slo-tpot", type=_positive, metavar="S", help="time per output token")
    goal.add_argument(
        "--find-capacity",
        action="store_true",
        help="raise the rate until P99 TTFT breaks --slo-ttft",
    )
    out = parser.add_argument_group("output")
    out.add_argument(
        "--json", action="store_true", help="the figures on stdout, nothing else there"
    )
    out.add_argument("--html", type=Path, metavar="FILE", help="write a report with plots")
    out.add_argument("--quiet", action="store_true", help="no progress")
    add("--seed", type=int, default=0, help="the same seed sends the same requests (default: 0)")


def _add_dataset(group: Any) -> None:
    add = group.add_argument
    add(
        "--dataset",
        metavar="NAME|FILE",
        help="synthetic, shared-prefix, multi-turn, or a trace file: "
        "Mooncake jsonl, Azure csv or an access log (default: synthetic)",
    )
    add(
        "--input-tokens",
        type=_count,
        default=512,
        metavar="N",
        help="own part of a prompt (default: 512)",
    )
    add("--output-tokens", type=_count, default=128, metavar="N", help="(default: 128)")
    add(
        "--length-spread",
        type=float,
        default=0.0,
        metavar="SIGMA",
        help="log-normal spread of both (default: 0)",
    )
    add(
        "--prefixes",
        type=_count,
        default=20,
        metavar="N",
        help="shared-prefix: how many (default: 20)",
    )
    add(
        "--prefix-tokens",
        type=_count,
        default=4000,
        metavar="N",
        help="how long each (default: 4000)",
    )
    add("--zipf", type=float, default=1.0, metavar="S", help="how uneven their use (default: 1)")
    add("--users", type=_count, default=200, metavar="N", help="multi-turn: users (default: 200)")
    add("--turns", type=_count, default=8, metavar="N", help="turns of a chat (default: 8)")
    add("--speed", type=_positive, metavar="X", help="replay a trace X times as fast")


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 if nothing succeeded, 2 if the options make no sense."""
    raise_open_files()
    try:
        if args.target[0] == "qualify" and len(args.target) == 2:
            return uvloop.run(_qualify(args, args.target[1]))
        if len(args.target) != 1:
            return _complain("give one URL, or: qualify URL", 2)
        return uvloop.run(_bench(args, args.target[0]))
    except options.UsageError as error:
        return _complain(str(error), 2)
    except ScenarioError as error:
        return _complain(str(error), 2)
    except (TraceError, OSError, RuntimeError) as error:
        return _complain(str(error), 1)


async def _bench(args: argparse.Namespace, url: str) -> int:
    load_plan: Plan | ScenarioPlan
    load_plan = ScenarioPlan.from_args(args) if args.scenario else Plan.from_args(args)
    target = await _target(args, url)
    objective = Objective(args.slo_ttft, args.slo_tpot)
    found: capacity.Capacity | None = None
    if args.find_capacity and isinstance(load_plan, Plan):
        found, load_plan, measured = await _find_capacity(load_plan, target, objective, args)
    else:
        measured = await _measure(load_plan, target, args)
    document = {
        "headrace": __version__, "command": "bench", "url": url, "model": target.model,
        "load": load_plan.describe(), "seed": args.seed,
        **summarise(measured, objective, load_plan.warmup_requests),
    }  # fmt: skip
    if found is not None:
        document["capacity"] = found.document()
    document["warnings"] = warnings(document)
    if args.html:
        report.write(args.html, document, measured.record)
    _print(args, document)
    return 0 if document["requests"]["ok"] else 1


async def _measure(load_plan: Plan | ScenarioPlan, target: Target, args: argparse.Namespace) -> Run:
    """Put a load on the target; after Ctrl-C the run holds what was measured until then."""
    loop = asyncio.get_running_loop()
    async with Run(target).open() as run:
        work = asyncio.ensure_future(load_plan.drive(run))
        loop.add_signal_handler(signal.SIGINT, work.cancel)
        try:
            await progress.watch(work, run, quiet=args.quiet or args.json)
        except asyncio.CancelledError:
            if not work.cancelled() or args.find_capacity:
                raise KeyboardInterrupt from None
        finally:
            loop.remove_signal_handler(signal.SIGINT)
    return run


async def _find_capacity(
    load_plan: Plan, target: Target, objective: Objective, args: argparse.Namespace
) -> tuple[capacity.Capacity, Plan, Run]:
    """The knee, with the load and run at the highest rate that held (else the last one)."""
    runs: dict[float, Run] = {}
    slo_ttft_s = objective.ttft_s or DEFAULT_SLO_TTFT_S

    async def measure(rate: float) -> dict[str, Any]:
        progress.tell(args.quiet, f"{rate:.2f} requests/s …")
        runs[rate] = await _measure(load_plan.at_rate(rate), target, args)
        return summarise(runs[rate], objective)

    found = await capacity.find(measure, args.rate or 1.0, slo_ttft_s)
    shown = found.rate or found.steps[-1]["rate"]
    return found, load_plan.at_rate(shown), runs[shown]


async def _qualify(args: argparse.Namespace, url: str) -> int:
    target = await _target(args, url)
    found = await qualify.qualify(
        target, options.lengths(args), args.slo_ttft or DEFAULT_SLO_TTFT_S, args.seed,
        lambda text: progress.tell(args.quiet, text),
    )  # fmt: skip
    document = {
        "headrace": __version__,
        "command": "bench qualify",
        "url": url,
        "model": target.model,
        **found,
    }
    if args.json:
        print(json.dumps(document))
    else:
        printing.print_qualify(document)
    return 0


async def _target(args: argparse.Namespace, url: str) -> Target:
    if not url.startswith(("http://", "https://")):
        raise options.UsageError(f"{url!r} is no http:// or https:// URL")
    model = args.model or await options.first_model(url, args.api_key)
    return Target(url, model, args.api_key, args.timeout, ignore_eos=not args.no_ignore_eos)


def _print(args: argparse.Namespace, document: dict[str, Any]) -> None:
    for warning in document["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    if args.json:
        print(json.dumps(document))
    else:
        printing.print_bench(document)


def _complain(text: str, code: int) -> int:
    print(f"headrace bench: {text}", file=sys.stderr)
    return code


def _positive(word: str) -> float:
    number = float(word)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{word} is not above 0")
    return number


def _count(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word} is not 1 or more")
    return number
