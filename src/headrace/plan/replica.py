"""What one replica of a given split is, holds and serves."""

from __future__ import annotations

import msgspec

from headrace.plan.latency import capacity_per_s
from headrace.plan.memory import (
    DEFAULT_UTILIZATION,
    Memory,
    Split,
    default_batched_tokens,
    default_max_num_seqs,
    memory_of,
    safe_utilization,
)
from headrace.plan.question import Ask
from headrace.plan.queueing import saturation_rate_per_s
from headrace.plan.roofline import Machine, decode_step_s, prefill_s
from headrace.plan.steplaw import StepLaw, machine_of, step_law

# Ten is the number of the second signal; the others show the shape of the curve.
_SHOWN_BATCHES = (1, 4, 10, 16, 64, 256)


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a plan."""

    split: Split
    machine: Machine
    memory: Memory
    law: StepLaw
    prefill_s: float  # of one mean prompt on an idle replica
    single_step_s: float  # TPOT of a lone stream
    saturation_per_s: float
    capacity_per_s: float  # highest rate within SLO and utilisation ceiling


def replica_of(ask: Ask, split: Split, memory: Memory | None = None) -> Replica:
    """What one replica of that split gives."""
    memory = memory or memory_for(ask, split)
    machine = _machine(ask, split)
    traffic = ask.traffic
    law = step_law(
        ask.model,
        ask.gpu,
        split.tp,
        split.pp,
        ask.weights_dtype,
        ask.kv_dtype,
        context_tokens=max(1, round(traffic.context_tokens)),
        # Long prompts have most of the attention; uncached tokens look back on the cached ones.
        prompt_tokens=traffic.input_tokens * (1 + traffic.input_cv**2) * (1 + traffic.hit_ratio),
        machine=machine,
        efficiency=ask.efficiency,
    )
    law = msgspec.structs.replace(
        law,
        kv_capacity_tokens=memory.kv_capacity_tokens,
        max_num_seqs=safe_max_num_seqs(ask, memory),
    )
    return Replica(
        split=split,
        machine=machine,
        memory=memory,
        law=law,
        prefill_s=prefill_s(
            ask.model,
            machine,
            ask.weights_dtype,
            traffic.uncached_tokens,
            law.batched_tokens,
            ask.efficiency,
        ),
        single_step_s=decode_step_s(
            ask.model,
            machine,
            ask.weights_dtype,
            ask.kv_dtype,
            1,
            traffic.context_tokens,
            ask.efficiency,
        ),
        saturation_per_s=saturation_rate_per_s(law, traffic),
        capacity_per_s=capacity_per_s(law, traffic, ask.slo, ask.max_utilization),
    )


def safe_max_num_seqs(ask: Ask, memory: Memory) -> int:
    """`--max-num-seqs` at which the KV cache holds every sequence at its full mean length.

    At most what vLLM takes by itself, at least one.
    """
    traffic = ask.traffic
    length = traffic.input_tokens * (1 - traffic.shared_ratio) + traffic.output_tokens
    fit = int(memory.kv_capacity_tokens / max(1.0, length))
    return max(1, min(default_max_num_seqs(ask.gpu), fit))


def advised_utilization(ask: Ask, memory: Memory) -> float:
    """`--gpu-memory-utilization` to start with: the default, or what the plan had to assume."""
    return max(memory.utilization, min(DEFAULT_UTILIZATION, safe_utilization(ask.gpu)))


def memory_for(ask: Ask, split: Split) -> Memory:
    return memory_of(
        ask.model,
        ask.gpu,
        split,
        ask.weights_dtype,
        ask.kv_dtype,
        context_tokens=ask.context_tokens,
        batched_tokens=default_batched_tokens(ask.gpu),
    )


def _machine(ask: Ask, split: Split) -> Machine:
    across = split.tp > ask.gpus_per_host
    one_host = split.gpus <= ask.gpus_per_host
    return machine_of(
        ask.gpu,
        split,
        ask.between if across else ask.inside,
        ask.inside if one_host else ask.between,
    )


def batch_steps(replica: Replica, ask: Ask) -> list[tuple[int, float]]:
    """Batches from one sequence to the largest, with the seconds of their decode step."""
    most = replica.law.max_num_seqs
    sizes = sorted({n for n in _SHOWN_BATCHES if n < most} | {most})
    return [(n, decode_seconds(replica, ask, n)) for n in sizes]


def decode_seconds(replica: Replica, ask: Ask, batch: float) -> float:
    """Seconds of a decode step of that batch, at the mean context of the traffic."""
    return decode_step_s(
        ask.model,
        replica.machine,
        ask.weights_dtype,
        ask.kv_dtype,
        batch,
        ask.traffic.context_tokens,
        ask.efficiency,
    )
