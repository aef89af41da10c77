"""The `vllm serve` line of one replica, in the spelling of vLLM 0.32."""

from __future__ import annotations

import re
import shlex

from headrace.plan.memory import default_batched_tokens
from headrace.plan.planner import Plan
from headrace.plan.replica import advised_utilization

PORT = 8000
MASTER_PORT = 29501

# A request in flight is let run to its end before the engine stops: as long as the gateway's own
# server.drain_timeout_s.
SHUTDOWN_TIMEOUT_S = 300

_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
_KV_DTYPES = {"fp8": "fp8", "int8": "int8_per_token_head", "int4": "int4_per_token_head"}


def serve_arguments(plan: Plan, *, master: str = "", rank: str = "") -> list[str]:
    """Everything after `vllm serve`. With `master` (address) and `rank`, one machine of several."""
    ask, replica = plan.ask, plan.replica
    split = replica.split
    words = [ask.model.hub, "--port", str(PORT)]
    if split.tp > 1:
        words += ["--tensor-parallel-size", str(split.tp)]
    if split.pp > 1:
        words += ["--pipeline-parallel-size", str(split.pp)]
    if master:
        hosts = str(plan.hosts_per_replica)
        words += ["--nnodes", hosts, "--node-rank", rank, "--master-addr", master]
        words += ["--master-port", str(MASTER_PORT), "--distributed-executor-backend", "mp"]
    words += _precision(plan)
    words += ["--max-model-len", str(ask.context_tokens)]
    words += ["--max-num-seqs", str(replica.law.max_num_seqs)]
    words += ["--max-num-batched-tokens", str(default_batched_tokens(ask.gpu))]
    words += ["--gpu-memory-utilization", f"{advised_utilization(ask, replica.memory):.2f}"]
    words += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    words += ["--shutdown-timeout", str(SHUTDOWN_TIMEOUT_S)]
    return words


def _precision(plan: Plan) -> list[str]:
    """Only what differs from the checkpoint: a quantised one says itself how it is quantised."""
    ask = plan.ask
    words = []
    if ask.weights_dtype in _DTYPES:
        words += ["--dtype", _DTYPES[ask.weights_dtype]]
    elif ask.weights_dtype == "fp8" and ask.model.native_dtype != "fp8":
        words += ["--quantization", "fp8"]
    if ask.kv_dtype in _KV_DTYPES:
        words += ["--kv-cache-dtype", _KV_DTYPES[ask.kv_dtype]]
    return words


def serve_lines(plan: Plan) -> str:
    """Shell lines that start one replica, on every machine that it spans."""
    ask = plan.ask
    head = [f"# one replica: {ask.model.name}, {ask.weights_dtype}, {_cards(plan)}"]
    if plan.fleet:
        head.append(f"# start {plan.fleet.replicas} of them")
    if ask.weights_dtype in ("int4", "int8") and ask.weights_dtype != ask.model.native_dtype:
        head.append(f"# the model must name a checkpoint in {ask.weights_dtype}")
    hosts = plan.hosts_per_replica
    if hosts == 1:
        return "\n".join([*head, shlex.join(["vllm", "serve", *serve_arguments(plan)]), ""])
    lines = [*head, "# MASTER: address of the first machine"]
    for rank in range(hosts):
        words = ["vllm", "serve", *serve_arguments(plan, master="MASTER", rank=str(rank))]
        lines.append(f"# machine {rank}")
        lines.append(shlex.join(words + (["--headless"] if rank else [])))
    return "\n".join([*lines, ""])


def _cards(plan: Plan) -> str:
    return f"{plan.replica.split.gpus} × {plan.ask.gpu.name}"


def label(text: str) -> str:
    """A name that DNS, Kubernetes and compose accept: lower case, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-") or "model"
