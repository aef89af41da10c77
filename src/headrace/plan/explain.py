"""Every figure of a plan with the formula it came from and the numbers put in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.plan.deployment import EFFICIENCY_RANGES, EXPERT_COMPUTE_RATIO, Deployment
from headrace.plan.links import LINK_EFFICIENCY, Link
from headrace.plan.memory import kv_bytes_per_token, weight_bytes
from headrace.plan.models import (
    Model,
    active_params,
    matmul_params,
    total_params,
    touched_expert_ratio,
)
from headrace.plan.planner import Plan
from headrace.plan.precision import kv_element_bytes, weight_element_bytes
from headrace.plan.queueing import largest_batch
from headrace.plan.roofline import (
    all_reduce_s,
    crossover_batch,
    decode_ceiling_tokens_per_s,
    overhead_s,
    pipeline_bubble_ratio,
)


class Step(msgspec.Struct, frozen=True):
    """One figure: its formula, the formula with numbers, the result, and where inputs come from."""

    name: str
    formula: str
    numbers: str
    result: str
    source: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The step for JSON."""
        return dict(msgspec.to_builtins(self))


def explain(plan: Plan) -> list[Step]:
    """The steps of a plan, in the order in which they build on each other."""
    return [*_memory(plan), *_speed(plan), *_communication(plan), *_queueing(plan)]


def _memory(plan: Plan) -> Iterator[Step]:
    ask, replica, model = plan.ask, plan.replica, plan.ask.model
    each = weight_element_bytes(ask.weights_dtype)
    active = f" ({active_params(model) / 1e9:.2f} G active a token)" if model.experts else ""
    yield Step(
        "weights",
        "layer parameters · bytes + embeddings · 2 B",
        f"{total_params(model) / 1e9:.2f} G parameters{active}, {each:.3g} B each in "
        f"{ask.weights_dtype}",
        f"{weight_bytes(model, ask.weights_dtype) / 1e9:.1f} GB",
        f"huggingface.co/{model.hub}",
    )
    kv = kv_bytes_per_token(model, ask.kv_dtype)
    yield Step(
        f"KV cache of a token ({model.attention})",
        _kv_formula(model),
        _kv_numbers(model, kv_element_bytes(ask.kv_dtype)),
        f"{kv / 1024:.1f} KiB",
    )
    memory = replica.memory
    yield Step(
        "KV cache of a card",
        "memory · utilisation − weights/(tp·pp) − activations − runtime",
        f"{memory.card_bytes / 1e9:.1f} · {memory.utilization:.2f} − "
        f"{memory.weight_bytes / 1e9:.1f} − {memory.activation_bytes / 1e9:.2f} − "
        f"{memory.runtime_bytes / 1e9:.2f} GB",
        f"{memory.kv_bytes / 1e9:.1f} GB",
        ask.gpu.source,
    )
    yield Step(
        "KV capacity of a replica",
        "KV of a card ÷ KV of a token on a card",
        f"{memory.kv_bytes / 1e9:.2f} GB ÷ {memory.kv_bytes_per_token / 1024:.2f} KiB",
        f"{memory.kv_capacity_tokens} tokens",
    )
    traffic = ask.traffic
    yield Step(
        "max_num_seqs",
        "min(KV capacity ÷ (input·(1 − shared) + output), the engine's default)",
        f"{memory.kv_capacity_tokens} ÷ ({traffic.input_tokens:.0f}·{1 - traffic.shared_ratio:.2f} "
        f"+ {traffic.output_tokens:.0f})",
        f"{replica.law.max_num_seqs}",
        "vLLM 0.32 EngineArgs.get_batch_defaults",
    )


def _kv_formula(model: Model) -> str:
    if model.kv_lora_rank:
        return "(latent + rotary part) · layers · bytes"
    tail = "; windowed layers stop at their window" if model.window_layers else ""
    return f"2 · KV heads · head size · layers · bytes{tail}"


def _kv_numbers(model: Model, each: float) -> str:
    if model.kv_lora_rank:
        return f"({model.kv_lora_rank} + {model.rope_head_dim}) · {model.layers} · {each:g} B"
    numbers = f"2 · {model.kv_heads} · {model.head_dim} · {model.layers} · {each:g} B"
    if model.window_layers:
        numbers += f"; {model.window_layers} layers see {model.window_tokens} tokens"
    return numbers


def _speed(plan: Plan) -> Iterator[Step]:
    ask, replica = plan.ask, plan.replica
    model, deployment, used = ask.model, replica.deployment, ask.efficiency
    tp = deployment.split.tp
    low, high = EFFICIENCY_RANGES["compute_ratio"]
    reached = used.compute_ratio * (EXPERT_COMPUTE_RATIO if model.experts else 1.0)
    halved = ", half of it with experts" if model.experts else ""
    yield Step(
        "prefill of one prompt",
        "max(2·P·n + attention, weights read) ÷ (FLOPS · MFU · tp) + all-reduces",
        f"2 · {matmul_params(model) / 1e9:.2f} G · {ask.traffic.uncached_tokens:.0f} ÷ "
        f"({ask.gpu.flops_per_s(ask.weights_dtype) / 1e12:.0f} T · {reached:.2f} · "
        f"{tp}); attention 4·heads·width·n²/2 a layer",
        f"{replica.prefill_s * 1e3:.0f} ms "
        f"({ask.traffic.uncached_tokens / replica.prefill_s:.0f} tokens/s)",
        "measured" if ask.measured else f"MFU {low:g}–{high:g} in published runs{halved}",
    )
    yield Step(
        "decode ceiling of one stream",
        "bandwidth · tp ÷ weights read a token",
        f"{ask.gpu.bandwidth_gbps:g} GB/s · {tp}",
        f"{decode_ceiling_tokens_per_s(deployment):.0f} tokens/s",
        ask.gpu.source,
    )
    low, high = EFFICIENCY_RANGES["bandwidth_ratio"]
    yield Step(
        "decode of one stream",
        "weights ÷ (bandwidth · efficiency · tp) + KV read + all-reduces + overhead",
        f"efficiency {used.bandwidth_ratio:.2f}, context {ask.traffic.context_tokens:.0f}, "
        f"overhead {overhead_s(deployment) * 1e3:.2g} ms a step",
        f"{replica.single_step_s * 1e3:.2f} ms ({1 / replica.single_step_s:.0f} tokens/s)",
        "measured" if ask.measured else f"efficiency {low:g}–{high:g} in published runs",
    )
    batch = crossover_batch(deployment)
    numbers = "the batch at which computing takes as long as reading the weights"
    if model.experts:
        numbers += f"; it touches {touched_expert_ratio(model, batch):.0%} of the experts"
    yield Step(
        "decode turns compute-bound", "weights read(n) = n · compute", numbers, f"{batch:.0f}"
    )


def _communication(plan: Plan) -> Iterator[Step]:
    deployment = plan.replica.deployment
    split = deployment.split
    if split.tp > 1:
        inside, between = plan.ask.inside, plan.ask.between
        over = (between,) if split.tp > plan.ask.gpus_per_host else (inside, between)
        yield from (_all_reduce(deployment, link) for link in over)
    stages = split.pp
    if stages > 1:
        yield Step(
            "pipeline bubble of a single chunk",
            "(pp − 1)/(chunks + pp − 1)",
            f"({stages} − 1)/(1 + {stages} − 1)",
            f"{pipeline_bubble_ratio(stages, 1):.0%}",
            "GPipe, NeurIPS 2019",
        )


def _all_reduce(deployment: Deployment, link: Link) -> Step:
    """The cost over one kind of link, taken by the plan or for comparison."""
    place = "inside the machine" if link.inside_machine else "across machines"
    over = msgspec.structs.replace(deployment, tensor_link=link)
    return Step(
        f"all-reduces of a decode step, {place}",
        "2 · layers · (latency + 2(tp − 1)/tp · hidden · 2 B ÷ bandwidth)",
        f"2 · {deployment.model.layers} · ({link.latency_s * 1e6:g} µs + …) over {link.name}, "
        f"{link.gbps:g} GB/s one way · {LINK_EFFICIENCY}",
        f"{all_reduce_s(over, 1) * 1e3:.2f} ms",
        link.source,
    )


def _queueing(plan: Plan) -> Iterator[Step]:
    ask, replica = plan.ask, plan.replica
    law, traffic = replica.law, ask.traffic
    yield Step(
        "step-time law",
        "base + a · prefill tokens + b · sequences + c · context tokens",
        f"{law.base_s * 1e3:.2f} ms + {law.per_prefill_token_s * 1e6:.1f} µs + "
        f"{law.per_sequence_s * 1e6:.1f} µs + {law.per_context_token_s * 1e6:.4f} µs",
        f"{law.step_s(0, 1, traffic.context_tokens) * 1e3:.1f} ms with one sequence",
    )
    batch = largest_batch(law, traffic)
    yield Step(
        "saturation of a replica",
        "N ÷ (output · step(N)); N by max_num_seqs, KV cache and token budget",
        f"{batch} ÷ ({traffic.output_tokens:.0f} · step({batch}))",
        f"{replica.saturation_per_s:.2f} requests/s",
    )
    slo = ask.slo
    promises = [
        f"{name} p{slo.percentile * 100:g} ≤ {value:g} s"
        for name, value in (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s))
        if value is not None
    ]
    yield Step(
        "capacity of a replica",
        "highest rate within SLO and utilisation ceiling (birth-death chain)",
        f"{', '.join(promises) or 'no SLO'}; utilisation ≤ {ask.max_utilization:g}",
        f"{replica.capacity_per_s:.2f} requests/s",
    )
    if plan.fleet is not None:
        fleet, spare = plan.fleet, " + 1 to spare" if ask.always_on else ""
        yield Step(
            "capacity of the fleet",
            "replicas · capacity of one among them; deviations shrink by √replicas",
            f"{fleet.replicas} · {fleet.capacity_per_s / fleet.replicas:.2f}",
            f"{fleet.capacity_per_s:.2f} requests/s",
        )
        yield Step(
            "replicas",
            f"the fewest whose capacity is rate · (1 + head-room){spare}",
            f"{fleet.rate_per_s:.3g} · {1 + ask.headroom_ratio:.2f} ≤ {fleet.capacity_per_s:.2f}",
            f"{fleet.replicas}",
        )
