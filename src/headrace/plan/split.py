"""How one replica may be cut over cards: the candidates, from one card to many machines.

Tensor parallel inside the machine, data parallel (more replicas) across; a pipeline only when one
machine cannot hold the model.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.plan.deployment import Split
from headrace.plan.models import Model
from headrace.plan.names import PlanError

MAX_STAGES = 32


def tensor_ways(model: Model, most: int) -> list[int]:
    """Tensor-parallel degrees that vLLM accepts up to `most`: powers of two that divide the heads.

    KV heads may be fewer than the ways (they are copied), but must then divide them.
    """
    ways = [1 << n for n in range(most.bit_length()) if 1 << n <= most]
    return [w for w in ways if _cuts(model, w)]


def _cuts(model: Model, ways: int) -> bool:
    if model.heads % ways:
        return False
    kv = 1 if model.kv_lora_rank else model.kv_heads
    return kv % ways == 0 or ways % kv == 0


def candidates(model: Model, gpus_per_host: int) -> Iterator[Split]:
    """Splits to try, smallest first: one machine, then a pipeline with a machine a stage."""
    ways = tensor_ways(model, gpus_per_host)
    yield from (Split(tp) for tp in ways)
    yield from (Split(ways[-1], pp) for pp in range(2, min(MAX_STAGES, model.layers) + 1))


def verdict(split: Split, replicas: int, gpus_per_host: int) -> str:
    """The three ways of being parallel in one sentence, and why."""
    if split.gpus == 1:
        inside = "one card holds the model: no tensor parallelism"
    elif split.tp > gpus_per_host:
        inside = f"tensor parallel {split.tp} over machines, as asked for: slow"
    elif split.pp > 1:
        inside = (
            f"tensor parallel {split.tp} inside each machine, pipeline of {split.pp} because no "
            "single machine holds the model"
        )
    else:
        inside = f"tensor parallel {split.tp} inside the machine, no pipeline"
    return f"{inside}; data parallel {replicas} by the gateway"


def forced(model: Model, tp: int | None, pp: int | None) -> Split:
    """The split that the user asked for.

    Raises PlanError when the model cannot be cut that way.
    """
    split = Split(tp or 1, pp or 1)
    if split.tp < 1 or split.pp < 1:
        raise PlanError("--tp and --pp must be at least 1", param="tp")
    if not _cuts(model, split.tp):
        fit = ", ".join(map(str, tensor_ways(model, 64)))
        raise PlanError(
            f"--tp {split.tp} does not divide the {model.heads} heads of {model.name}; "
            f"possible: {fit}",
            param="tp",
        )
    if split.pp > model.layers:
        raise PlanError(f"--pp {split.pp} is above the {model.layers} layers of {model.name}")
    return split
