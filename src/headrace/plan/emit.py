"""A plan as something to run: vLLM lines, compose file, Kubernetes manifests, gateway config."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import yaml

from headrace import __version__
from headrace.config import MAX_REPLICAS
from headrace.plan.engine_flags import PORT, SHUTDOWN_TIMEOUT_S, serve_arguments, serve_lines
from headrace.plan.kubernetes import manifests
from headrace.plan.names import PlanError
from headrace.plan.planner import Plan

# The builds of vLLM by what Kubernetes calls the card; to be pinned by digest in earnest.
_ENGINE_IMAGES = {
    "nvidia.com/gpu": "vllm/vllm-openai:v0.32.0",
    "amd.com/gpu": "vllm/vllm-openai-rocm:v0.32.0",
    "huawei.com/Ascend910": "quay.io/ascend/vllm-ascend:v0.32.0",
}
_GATEWAY_IMAGE = f"headrace:{__version__}"


def emit(form: str, plan: Plan) -> str:
    """The text of one of FORMATS.

    Raises PlanError where a form cannot say it: a compose file for a replica of several machines,
    or more replicas than one gateway takes.
    """
    return _FORMS[form](plan)


def gateway_config(plan: Plan, urls: list[str]) -> dict[str, Any]:
    """The gateway's configuration for replicas at these URLs."""
    if len(urls) > MAX_REPLICAS:
        raise PlanError(f"{len(urls)} replicas are above the {MAX_REPLICAS} of one gateway")
    return {
        "replicas": [{"url": url} for url in urls],
        "routing": {"policy": "cost_aware"},
        "admission": {
            # A full batch is full load; what is beyond it waits in the gateway, not in the engine.
            "max_concurrency": plan.replica.law.max_num_seqs,
            "queue_size": plan.replica.law.max_num_seqs,
        },
        "server": {"drain_timeout_s": SHUTDOWN_TIMEOUT_S},
    }


def _headrace(plan: Plan) -> str:
    count = plan.fleet.replicas if plan.fleet else 1
    return _yaml(gateway_config(plan, [f"http://vllm-{n}:{PORT}" for n in range(count)]))


def _compose(plan: Plan) -> str:
    """The replicas of one machine, and the gateway before them."""
    cards = plan.replica.split.gpus
    if plan.hosts_per_replica > 1:
        raise PlanError(
            f"a replica spans {plan.hosts_per_replica} machines; compose knows one: --emit k8s"
        )
    wanted = plan.fleet.replicas if plan.fleet else 1
    here = min(wanted, plan.ask.gpus_per_host // cards)
    services: dict[str, Any] = {f"vllm-{n}": _engine_service(plan, n, cards) for n in range(here)}
    urls = [f"http://{name}:{PORT}" for name in services]
    services["headrace"] = {
        "image": _GATEWAY_IMAGE,
        "command": ["serve", "--replicas", *urls, *_gateway_flags(plan)],
        "ports": ["30000:30000"],
        "stop_grace_period": f"{SHUTDOWN_TIMEOUT_S + 15}s",
        "restart": "unless-stopped",
    }
    note = ""
    if here < wanted:
        note = (
            f"# {here} of {wanted} replicas: what one machine of {plan.ask.gpus_per_host} holds\n"
        )
    return note + _yaml({"services": services, "volumes": {"models": {}}})


def _gateway_flags(plan: Plan) -> list[str]:
    places = str(plan.replica.law.max_num_seqs)
    return ["--max-concurrency", places, "--queue-size", places]


def _engine_service(plan: Plan, number: int, cards: int) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": _ENGINE_IMAGES[plan.ask.gpu.resource],
        "command": serve_arguments(plan),
        "ipc": "host",  # tensor-parallel workers talk through shared memory
        "volumes": ["models:/root/.cache/huggingface"],
        "environment": _hub_token(),
        "healthcheck": {
            "test": ["CMD", "curl", "-fsS", f"http://localhost:{PORT}/health"],
            "interval": "10s",
            "start_period": "20m",
        },
        "stop_grace_period": f"{SHUTDOWN_TIMEOUT_S + 15}s",
        "restart": "unless-stopped",
    }
    return service | _devices(plan.ask.gpu.resource, range(number * cards, (number + 1) * cards))


def _devices(resource: str, cards: Iterable[int]) -> dict[str, Any]:
    """How a container gets these cards of its machine: each vendor has a way of its own."""
    numbers = [str(n) for n in cards]
    if resource.startswith("amd"):
        visible = {"HIP_VISIBLE_DEVICES": ",".join(numbers)}
        return {"devices": ["/dev/kfd", "/dev/dri"], "environment": _hub_token() | visible}
    if resource.startswith("huawei"):
        shared = ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]
        return {"devices": [*(f"/dev/davinci{n}" for n in numbers), *shared]}
    device = {"driver": "nvidia", "device_ids": numbers, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def _hub_token() -> dict[str, str]:
    return {"HF_TOKEN": "${HF_TOKEN:-}"}


def _kubernetes(plan: Plan) -> str:
    return _yaml(*manifests(plan, _ENGINE_IMAGES[plan.ask.gpu.resource]))


class _Dumper(yaml.SafeDumper):
    """Writes what occurs twice twice: anchors are valid YAML that few people can read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(*documents: dict[str, Any]) -> str:
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100)
    return text


_FORMS: dict[str, Callable[[Plan], str]] = {
    "vllm": serve_lines,
    "compose": _compose,
    "k8s": _kubernetes,
    "headrace": _headrace,
}
FORMATS = tuple(_FORMS)
