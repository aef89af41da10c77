"""What a plan should make its reader think twice about."""

from __future__ import annotations

from headrace.plan.demand import Slo
from headrace.plan.memory import DEFAULT_UTILIZATION
from headrace.plan.planner import Plan


def warnings_of(plan: Plan) -> list[str]:
    """One sentence each, the gravest first."""
    ask, split = plan.ask, plan.replica.split
    found: list[str] = []
    if split.tp > ask.gpus_per_host:
        found.append(
            f"tensor parallel over machines (tp {split.tp}, {ask.gpus_per_host} cards a machine): "
            f"every layer waits for {ask.between.name} twice; use pp {plan.hosts_per_replica}"
        )
    if split.pp > 1:
        found.append(
            f"no single machine holds a replica: a pipeline of {split.pp} stages, which a lone "
            "stream passes one after the other"
        )
    if split.tp > 2 and ask.inside.name.startswith("pcie"):
        found.append(f"tp {split.tp} over {ask.inside.name}: prefill is bound by the all-reduces")
    if ask.slo_assumed and ask.slo == Slo():
        found.append("TTFT 2 s and TPOT 50 ms cannot be kept here; planned without an SLO")
    found += _precision(plan)
    found += _memory(plan)
    if not ask.measured:
        found.append(
            "speeds are from vendor sheets and typical efficiencies (± 30 %); measure one replica "
            "with `headrace bench qualify` and give --measured"
        )
    return found


def _precision(plan: Plan) -> list[str]:
    ask = plan.ask
    found = []
    if ask.weights_dtype == "fp8" and not ask.gpu.fp8_tflops:
        found.append(f"{ask.gpu.name} has no FP8 units: weights are small, compute runs in 16 bit")
    if ask.weights_dtype == "bf16" and ask.gpu.name == "T4":
        found.append("T4 has no BF16: use --weights-dtype fp16")
    if ask.weights_dtype in ("int4", "int8"):
        found.append(
            f"{ask.weights_dtype} needs a checkpoint quantised that way (AWQ, GPTQ or "
            "compressed-tensors); vLLM does not make one"
        )
    return found


def _memory(plan: Plan) -> list[str]:
    ask, replica = plan.ask, plan.replica
    found = []
    ten = 10 * min(ask.context_tokens, 8192)
    if replica.memory.kv_capacity_tokens < ten:
        found.append(
            f"the KV cache holds {replica.memory.kv_capacity_tokens} tokens: fewer than ten "
            f"sequences of {min(ask.context_tokens, 8192)}"
        )
    if replica.memory.utilization > DEFAULT_UTILIZATION:
        found.append(
            f"a tight fit: needs --gpu-memory-utilization {replica.memory.utilization:.2f}"
        )
    if replica.split.tp > 1 and ask.model.kv_lora_rank:
        found.append(
            f"an MLA latent cannot be cut over tp {replica.split.tp}: every card holds the whole "
            "KV cache; data-parallel attention (vLLM --data-parallel-size with "
            "--enable-expert-parallel) holds more"
        )
    elif replica.split.tp > ask.model.kv_heads:
        found.append(
            f"tp {replica.split.tp} is above the {ask.model.kv_heads} KV heads, which are copied: "
            "the KV cache gains nothing from the further cards"
        )
    return found
