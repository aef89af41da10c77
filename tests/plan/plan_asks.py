"""Questions for the planner, short to write."""

from typing import Any

from headrace.plan.catalog import find_model
from headrace.plan.demand import Slo, Traffic
from headrace.plan.gpus import find_gpu
from headrace.plan.links import pick_links
from headrace.plan.question import Ask


def ask(
    model: str,
    gpu: str,
    rate: float = 0.0,
    prompt: float = 1024,
    output: float = 256,
    context: int = 8192,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    links: tuple[str, ...] = (),
    **more: Any,
) -> Ask:
    """A question with the defaults of the command, SLO assumed unless one is given."""
    shape, card = find_model(model), find_gpu(gpu)
    inside, between = pick_links(card.link, list(links))
    if ttft_s is None and tpot_s is None:
        more = {"slo_assumed": True, **more}
    else:
        more = {"slo": Slo(ttft_s=ttft_s, tpot_s=tpot_s), **more}
    return Ask(
        model=shape,
        gpu=card,
        traffic=Traffic(rate_per_s=rate, input_tokens=prompt, output_tokens=output),
        context_tokens=min(context, shape.max_context_tokens),
        inside=inside,
        between=between,
        **{"weights_dtype": shape.native_dtype, "kv_dtype": "bf16", **more},
    )
