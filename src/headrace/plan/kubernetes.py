"""Kubernetes manifests of a fleet: one tensor-parallel group a pod.

A replica on one machine is a pod of a Deployment; one that spans machines is a group of a
LeaderWorkerSet (sigs.k8s.io/lws), whose leader serves.
"""

from __future__ import annotations

from typing import Any

from headrace.plan.engine_flags import PORT, SHUTDOWN_TIMEOUT_S, label, serve_arguments
from headrace.plan.planner import Plan

# From SIGTERM on the engine takes nothing new; before it, readers of the endpoints must have heard.
PRE_STOP_S = 20
# Weights may have to be fetched and compiled: ten seconds between looks, two hours at most.
_START_LOOKS = 720


def manifests(plan: Plan, image: str) -> list[dict[str, Any]]:
    """Service, workload and disruption budget of the plan's replicas."""
    name = f"vllm-{label(plan.ask.model.name)}"
    labels = {
        "app.kubernetes.io/name": "vllm",
        "app.kubernetes.io/instance": name,
        "headrace.io/replica": "true",  # what the gateway's discovery looks for (deploy/kubernetes)
    }
    replicas = plan.fleet.replicas if plan.fleet else 1
    grouped = plan.hosts_per_replica > 1
    workload = _group_set if grouped else _deployment
    served = {**labels, "role": "leader"} if grouped else labels
    return [
        _service(name, labels, served),
        workload(plan, name, labels, replicas, image),
        _disruption_budget(name, labels, served),
    ]


def _service(name: str, labels: dict[str, str], served: dict[str, str]) -> dict[str, Any]:
    """Headless: the gateway picks the pod, so it needs every address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "clusterIP": "None",
            "selector": served,
            "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
        },
    }


def _deployment(
    plan: Plan, name: str, labels: dict[str, str], replicas: int, image: str
) -> dict[str, Any]:
    pod = _pod(plan, labels, image, serve_arguments(plan))
    pod["metadata"] = {"labels": labels}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            # Cards are rarely to spare: make room first, then start the new pod there.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "template": pod,
        },
    }


def _group_set(
    plan: Plan, name: str, labels: dict[str, str], replicas: int, image: str
) -> dict[str, Any]:
    words = serve_arguments(plan, master="$(LWS_LEADER_ADDRESS)", rank="$(LWS_WORKER_INDEX)")
    leader = _pod(plan, labels, image, words)
    leader["metadata"] = {"labels": {**labels, "role": "leader"}}
    worker = _pod(plan, labels, image, [*words, "--headless"], serves=False)
    worker["metadata"] = {"labels": labels}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": plan.hosts_per_replica,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }


def _pod(
    plan: Plan, labels: dict[str, str], image: str, words: list[str], *, serves: bool = True
) -> dict[str, Any]:
    cards = min(plan.replica.split.gpus, plan.ask.gpus_per_host)
    container: dict[str, Any] = {
        "name": "vllm",
        "image": image,
        "args": words,
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": {
            "requests": {"cpu": "4", "memory": "32Gi"},
            "limits": {plan.ask.gpu.resource: cards},
        },
        "env": [_hub_token()],
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "models", "mountPath": "/root/.cache/huggingface"},
        ],
    }
    if serves:
        container |= _probes()
    return {
        "spec": {
            "terminationGracePeriodSeconds": PRE_STOP_S + SHUTDOWN_TIMEOUT_S + 15,
            "containers": [container],
            "volumes": [
                # NCCL and the workers share memory here; the default of 64 MB is too small.
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
                {"name": "models", "emptyDir": {}},
            ],
            "topologySpreadConstraints": [_spread(labels)],
            **_card_affinity(plan),
        }
    }


def _probes() -> dict[str, Any]:
    """Ready means loaded. A failing liveness probe restarts, so it is slow to judge."""
    look = {"httpGet": {"path": "/health", "port": "http"}}
    return {
        "startupProbe": {**look, "periodSeconds": 10, "failureThreshold": _START_LOOKS},
        "readinessProbe": {**look, "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**look, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        # The pod leaves the endpoints while it still serves: the gateway drains it meanwhile.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(PRE_STOP_S)]}}},
    }


def _hub_token() -> dict[str, Any]:
    reference = {"name": "huggingface", "key": "token", "optional": True}
    return {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}}


def _spread(labels: dict[str, str]) -> dict[str, Any]:
    """Replicas apart, so that one machine takes few of them along."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }


def _card_affinity(plan: Plan) -> dict[str, Any]:
    """A hint to machines that GPU feature discovery marks with this card, where it does."""
    if not plan.ask.gpu.node_label:
        return {}
    values = [plan.ask.gpu.node_label]
    expression = {"key": "nvidia.com/gpu.product", "operator": "In", "values": values}
    preference = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}
        }
    }


def _disruption_budget(name: str, labels: dict[str, str], served: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "labels": labels},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": served}},
    }
