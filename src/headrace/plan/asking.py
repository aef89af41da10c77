"""From the words of the command line to a question."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import msgspec

from headrace.plan.calibrate import efficiency_from, read_measured
from headrace.plan.catalog import find_model
from headrace.plan.demand import Slo, Traffic
from headrace.plan.gpus import find_gpu
from headrace.plan.hfconfig import read_config
from headrace.plan.links import pick_links
from headrace.plan.models import Model
from headrace.plan.names import PlanError
from headrace.plan.planner import fitting_replicas
from headrace.plan.precision import dtype_named
from headrace.plan.question import ASSUMED_SLO, Ask
from headrace.plan.replica import deployment_for
from headrace.plan.split import forced
from headrace.plan.traffic import read_traffic

# A chat request where nothing is said: Azure's 2023 conversation trace has 1 155 and 211 tokens.
ASSUMED_INPUT_TOKENS = 1024.0
ASSUMED_OUTPUT_TOKENS = 256.0

_CONTEXT_STEP = 1024
_LEAST_CONTEXT = 8192


def gpu_names(args: argparse.Namespace) -> list[str]:
    """The cards named by `--gpu`, at least one."""
    names = [name.strip() for name in args.gpu.split(",") if name.strip()]
    if not names:
        raise PlanError("--gpu names no card", param="gpu")
    return names


def ask_from(args: argparse.Namespace, gpu_name: str) -> Ask:
    """The question for one card.

    Raises PlanError for a word that is unknown or does not go with the others.
    """
    model, gpu = model_named(args.model), find_gpu(gpu_name)
    weights = args.weights_dtype or "auto"
    inside, between = pick_links(gpu.link, args.interconnect)
    traffic = _traffic(args)
    slo, assumed = _slo(args)
    ask = Ask(
        model=model,
        gpu=gpu,
        traffic=traffic,
        weights_dtype=dtype_named(weights, "weights dtype", model.native_dtype),
        kv_dtype=dtype_named(args.kv_dtype, "kv dtype", "bf16"),
        context_tokens=_context(args.context, model, traffic),
        inside=inside,
        between=between,
        gpus_per_host=args.gpus_per_host,
        slo=slo,
        slo_assumed=assumed,
        headroom_ratio=args.headroom,
        max_utilization=args.max_utilization,
        always_on=args.always_on,
        tp=args.tp,
        pp=args.pp,
        cards=args.gpus,
    )
    return _calibrated(ask, args.measured) if args.measured else ask


def model_named(name: str) -> Model:
    """A built-in model, or the shape in a `config.json` or in the directory that holds one."""
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    if path.suffix == ".json" or path.is_file():
        return read_config(path)
    return find_model(name)


def _traffic(args: argparse.Namespace) -> Traffic:
    if args.trace:
        traffic = read_traffic(args.trace)
    else:
        traffic = Traffic(
            rate_per_s=0.0, input_tokens=ASSUMED_INPUT_TOKENS, output_tokens=ASSUMED_OUTPUT_TOKENS
        )
    shared = args.shared_prefix or 0.0
    hit = max(shared, traffic.hit_ratio if args.prefix_hit is None else args.prefix_hit)
    return msgspec.structs.replace(
        traffic,
        rate_per_s=args.rate or traffic.rate_per_s,
        input_tokens=args.input_tokens or traffic.input_tokens,
        output_tokens=args.output_tokens or traffic.output_tokens,
        hit_ratio=hit,
        shared_ratio=shared,
    )


def _slo(args: argparse.Namespace) -> tuple[Slo, bool]:
    percentile = args.percentile / 100
    if args.slo_ttft is None and args.slo_tpot is None:
        return msgspec.structs.replace(ASSUMED_SLO, percentile=percentile), True
    return Slo(ttft_s=args.slo_ttft, tpot_s=args.slo_tpot, percentile=percentile), False


def _context(asked: int | None, model: Model, traffic: Traffic) -> int:
    """The longest sequence: as asked, or room for two standard deviations above the mean."""
    limit = model.max_context_tokens
    mean = traffic.input_tokens + traffic.output_tokens
    if mean > limit:
        raise PlanError(
            f"{mean:.0f} tokens a request are above the context of {model.name}, {limit}",
            param="input_tokens",
        )
    if asked is not None:
        if asked > limit:
            raise PlanError(f"--context {asked} is above that of {model.name}, {limit}")
        if asked < mean:
            raise PlanError(f"--context {asked} is below the {mean:.0f} tokens of a mean request")
        return asked
    spread = traffic.input_tokens * traffic.input_cv + traffic.output_tokens * traffic.output_cv
    steps = math.ceil((mean + 2 * spread) / _CONTEXT_STEP)
    return min(limit, max(_LEAST_CONTEXT, steps * _CONTEXT_STEP))


def _calibrated(ask: Ask, path: Path) -> Ask:
    """The question with measured efficiencies; the replica measured is the smallest that fits, or
    the split that was asked for."""
    measured = read_measured(path)
    if ask.tp or ask.pp:
        split = forced(ask.model, ask.tp, ask.pp)
    else:
        split = fitting_replicas(ask)[0].split
    efficiency = efficiency_from(
        measured, deployment_for(ask, split), ask.traffic.input_tokens, ask.traffic.output_tokens
    )
    return msgspec.structs.replace(ask, efficiency=efficiency, measured=True)
