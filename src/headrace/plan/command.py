"""Plan capacity: does the model fit, on how many cards, split how, and how many for the traffic.

`headrace plan compare --gpu A10,L40S,H100` ranks several cards by what they need.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import orjson

from headrace.plan.asking import ask_from, gpu_names
from headrace.plan.cautions import warnings_of
from headrace.plan.compare import compare, prices_from
from headrace.plan.decision import decide
from headrace.plan.document import envelope, plan_document
from headrace.plan.emit import FORMATS, emit
from headrace.plan.explain import explain
from headrace.plan.html import page
from headrace.plan.links import LINKS
from headrace.plan.names import PlanError
from headrace.plan.planner import plan
from headrace.plan.precision import DTYPES
from headrace.plan.report import print_comparison, print_explanation, print_plan
from headrace.plan.slo import NoSplit, SloImpossible

EXAMPLE = "headrace plan --model llama-3-70b --gpu H100-SXM --rate 20 --slo-ttft 1 --slo-tpot 0.04"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `headrace plan`."""
    parser.add_argument("action", nargs="?", choices=["compare"], help="rank several --gpu")
    parser.add_argument("--model", required=True, metavar="NAME|config.json")
    parser.add_argument(
        "--gpu", required=True, metavar="NAME", help="a card; for compare several, by commas"
    )
    _add_hardware(parser.add_argument_group("hardware"))
    _add_traffic(parser.add_argument_group("traffic"))
    _add_promises(parser.add_argument_group("promises"))
    _add_output(parser.add_argument_group("output"))


def _add_hardware(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gpus-per-host", type=count, default=8, metavar="N")
    group.add_argument(
        "--gpus", type=count, metavar="N", help="cards at hand; the fleet fills them"
    )
    group.add_argument("--tp", type=count, metavar="N", help="tensor-parallel ways (default: best)")
    group.add_argument("--pp", type=count, metavar="N", help="pipeline stages (default: fewest)")
    group.add_argument(
        "--weights-dtype", metavar="TYPE", help=f"{' '.join(DTYPES)} (default: the model's own)"
    )
    group.add_argument("--kv-dtype", metavar="TYPE", default="bf16", help="as above (default bf16)")
    group.add_argument(
        "--interconnect", nargs="+", default=[], metavar="LINK", help=" ".join(LINKS)
    )
    group.add_argument(
        "--measured", type=Path, metavar="FILE", help="JSON of `headrace bench qualify`"
    )


def _add_traffic(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--rate", type=positive, metavar="R", help="requests a second")
    group.add_argument("--input-tokens", type=tokens, metavar="N", help="mean (default 1024)")
    group.add_argument("--output-tokens", type=tokens, metavar="N", help="mean (default 256)")
    group.add_argument(
        "--trace", type=Path, metavar="FILE", help="Mooncake jsonl, Azure csv or our access log"
    )
    group.add_argument(
        "--prefix-hit", type=ratio, metavar="RATIO", help="prompt tokens found in the prefix cache"
    )
    group.add_argument(
        "--shared-prefix", type=ratio, metavar="RATIO", help="prompt tokens common to all requests"
    )
    group.add_argument("--context", type=count, metavar="N", help="longest sequence, tokens")


def _add_promises(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--slo-ttft", type=positive, metavar="S", help="time to the first token")
    group.add_argument("--slo-tpot", type=positive, metavar="S", help="time an output token")
    group.add_argument(
        "--percentile", type=percent, default=95.0, metavar="P", help="of the SLO (default 95)"
    )
    group.add_argument(
        "--headroom", type=not_negative, default=0.2, metavar="RATIO", help="default 0.2"
    )
    group.add_argument(
        "--max-utilization", type=share, default=0.8, metavar="RATIO", help="default 0.8"
    )
    group.add_argument("--always-on", action="store_true", help="24×7: one replica to spare")


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--explain", action="store_true", help="formulas with their numbers")
    group.add_argument("--emit", choices=FORMATS, help="print a deployment in place of the report")
    group.add_argument("--html", type=Path, metavar="FILE", help="a page with plots")
    group.add_argument(
        "--price", nargs="+", default=[], metavar="GPU=PRICE", help="for compare, an hour and card"
    )
    group.add_argument("--json", action="store_true", help="machine output")
    group.add_argument("--seed", type=int, default=0, help="accepted; a plan has no chance in it")
    group.add_argument("--quiet", action="store_true", help="no warnings on stderr")


def run(args: argparse.Namespace) -> int:
    """Exit code 0 for a plan, 1 when there is none, 2 for a question that makes no sense."""
    try:
        return _compare(args) if args.action == "compare" else _plan(args)
    except (NoSplit, SloImpossible, OSError) as error:
        print(f"headrace plan: {error}", file=sys.stderr)
        return 1
    except PlanError as error:
        print(f"headrace plan: {error}", file=sys.stderr)
        return 2


def _plan(args: argparse.Namespace) -> int:
    names = gpu_names(args)
    if len(names) > 1:
        raise PlanError("several --gpu need `headrace plan compare`", param="gpu")
    if args.price:
        raise PlanError("--price is for `headrace plan compare`", param="price")
    answer = plan(ask_from(args, names[0]))
    decision, warnings = decide(answer), warnings_of(answer)
    steps = explain(answer) if args.explain or args.html else []
    if args.html:
        args.html.write_text(page(answer, decision, warnings, steps), encoding="utf-8")
    if args.json:
        document = plan_document(answer, decision, warnings)
        if args.explain:
            document["explain"] = [step.as_dict() for step in steps]
        if args.emit:
            document["emit"] = {args.emit: emit(args.emit, answer)}
        _print_json(document)
    elif args.emit:
        sys.stdout.write(emit(args.emit, answer))
    else:
        print_plan(answer, decision)
        if args.explain:
            print_explanation(steps)
    if not (args.quiet or args.json):
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
    return 0


def _compare(args: argparse.Namespace) -> int:
    if args.emit or args.html or args.explain:
        raise PlanError("compare takes no --emit, --html or --explain: plan the winner with them")
    rows = compare([ask_from(args, name) for name in gpu_names(args)], prices_from(args.price))
    if args.json:
        _print_json(envelope(compare=[row.as_dict() for row in rows]))
    else:
        print_comparison(rows)
    return 0 if any(row.feasible for row in rows) else 1


def _print_json(document: dict[str, object]) -> None:
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def _number(text: str) -> float:
    value = float(text)  # argparse turns the ValueError into a message
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, got {text}")
    return value


def positive(text: str) -> float:
    """A finite number above 0, up to 1e9."""
    value = _number(text)
    if not 0 < value <= 1e9:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1e9, got {text}")
    return value


def tokens(text: str) -> float:
    """A mean length: 1 to 1e8."""
    value = _number(text)
    if not 1 <= value <= 1e8:
        raise argparse.ArgumentTypeError(f"must be from 1 to 1e8, got {text}")
    return value


def not_negative(text: str) -> float:
    """A finite number from 0 to 100."""
    value = _number(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"must be from 0 to 100, got {text}")
    return value


def ratio(text: str) -> float:
    """A number from 0 to below 1."""
    value = _number(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to below 1, got {text}")
    return value


def share(text: str) -> float:
    """A number above 0 and below 1."""
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, got {text}")
    return value


def percent(text: str) -> float:
    """A percentile: 1 to 99.9."""
    value = _number(text)
    if not 1 <= value <= 99.9:
        raise argparse.ArgumentTypeError(f"must be from 1 to 99.9, got {text}")
    return value


def count(text: str) -> int:
    """A whole number from 1 to a hundred million."""
    value = int(text)
    if not 1 <= value <= 100_000_000:
        raise argparse.ArgumentTypeError(f"must be from 1 to 100000000, got {text}")
    return value
