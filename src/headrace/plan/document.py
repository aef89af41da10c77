"""A plan as one JSON document."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace import __version__
from headrace.plan.decision import Decision
from headrace.plan.memory import kv_bytes_per_token, weight_bytes
from headrace.plan.models import active_params, total_params
from headrace.plan.planner import Plan
from headrace.plan.replica import advised_utilization, batch_steps
from headrace.plan.roofline import crossover_batch, decode_ceiling_tokens_per_s
from headrace.plan.split import verdict

PERCENTILES = (0.5, 0.9, 0.95, 0.99)


def envelope(**parts: Any) -> dict[str, Any]:
    """The head that every document has, and its parts."""
    return {"headrace": __version__, "command": "plan", **parts}


def plan_document(plan: Plan, decision: Decision, warnings: list[str]) -> dict[str, Any]:
    """All of a plan; `fleet` is null without traffic."""
    return envelope(
        model=_model(plan),
        gpu={"name": plan.ask.gpu.name, "source": plan.ask.gpu.source},
        traffic=msgspec.to_builtins(plan.ask.traffic),
        slo=msgspec.to_builtins(plan.ask.slo) | {"assumed": plan.ask.slo_assumed},
        replica=_replica(plan),
        split=verdict(
            plan.replica.split, plan.fleet.replicas if plan.fleet else 1, plan.ask.gpus_per_host
        ),
        fleet=_fleet(plan),
        decision=msgspec.to_builtins(decision),
        warnings=warnings,
    )


def _model(plan: Plan) -> dict[str, Any]:
    ask = plan.ask
    return {
        "name": ask.model.name,
        "params": total_params(ask.model),
        "active_params": active_params(ask.model),
        "attention": ask.model.attention,
        "weights_dtype": ask.weights_dtype,
        "weight_bytes": weight_bytes(ask.model, ask.weights_dtype),
        "kv_dtype": ask.kv_dtype,
        "kv_bytes_per_token": round(kv_bytes_per_token(ask.model, ask.kv_dtype)),
        "context_tokens": ask.context_tokens,
    }


def _replica(plan: Plan) -> dict[str, Any]:
    ask, replica = plan.ask, plan.replica
    split, memory = replica.split, replica.memory
    return {
        "tp": split.tp,
        "pp": split.pp,
        "gpus": split.gpus,
        "kv_capacity_tokens": memory.kv_capacity_tokens,
        "max_num_seqs": replica.law.max_num_seqs,
        "gpu_memory_utilization": advised_utilization(ask, memory),
        "prefill_tokens_per_s": ask.traffic.uncached_tokens / replica.prefill_s,
        "decode_tokens_per_s_single": 1 / replica.single_step_s,
        "decode_ceiling_tokens_per_s": decode_ceiling_tokens_per_s(replica.deployment),
        "crossover_batch": round(crossover_batch(replica.deployment)),
        "batches": [
            {"sequences": n, "tpot_s": step_s, "tokens_per_s": n / step_s}
            for n, step_s in batch_steps(replica, ask)
        ],
        "saturation_per_s": replica.saturation_per_s,
        "capacity_per_s": replica.capacity_per_s,
        "memory_per_gpu": {
            "card_bytes": memory.card_bytes,
            "weight_bytes": memory.weight_bytes,
            "kv_bytes": memory.kv_bytes,
            "activation_bytes": memory.activation_bytes,
            "runtime_bytes": memory.runtime_bytes,
        },
        "step_law": msgspec.to_builtins(replica.law),
        "efficiency": msgspec.to_builtins(ask.efficiency) | {"measured": ask.measured},
    }


def _fleet(plan: Plan) -> dict[str, Any] | None:
    fleet = plan.fleet
    if fleet is None:
        return None
    return {
        "replicas": fleet.replicas,
        "gpus": fleet.cards,
        "hosts": plan.hosts,
        "rate_per_s": fleet.rate_per_s,
        "capacity_per_s": fleet.capacity_per_s,
        "utilization": fleet.utilization,
        "ttft_p95_s": _at(plan, 0.95)["ttft_s"],
        "tpot_p95_s": _at(plan, 0.95)["tpot_s"],
        "percentiles": {f"p{p * 100:g}": _at(plan, p) for p in PERCENTILES},
    }


def _at(plan: Plan, percentile: float) -> dict[str, float]:
    latency = plan.latency(percentile)
    return {"ttft_s": latency.ttft_s, "tpot_s": latency.tpot_s}
