"""What scaling asks of the API server: the scale of a workload, its pods, and the Lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from headrace.config import Kubernetes
from headrace.control.discovery import kubernetes
from headrace.control.discovery.informer import Refused, message_of

COST = "controller.kubernetes.io/pod-deletion-cost"
DRAIN = "headrace.io/drain"  # read by the discovery of every gateway
REMAINING = "headrace.io/scale-to"  # replicas that remain when the marked pod has gone
ROLE = "deploy/kubernetes/examples/scaling-role.yaml"
MERGE_PATCH = "application/merge-patch+json"
CALL_S = 3.0  # a call that takes longer has failed
NOT_FOUND, CONFLICT = 404, 409

Lease = dict[str, Any]


class Scale(NamedTuple):
    """The scale of a workload: its count, which pods are its own, and as of which version."""

    replicas: int
    selector: str
    version: str


class Pod(NamedTuple):
    """A pod of a workload; `remaining` is None for one that no gateway has chosen to go."""

    namespace: str
    name: str
    is_terminating: bool
    drain: str | None
    remaining: int | None

    @property
    def ordinal(self) -> int:
        """Its place in a StatefulSet; -1 for the name of another kind of pod."""
        ordinal = self.name.rpartition("-")[2]
        return int(ordinal) if ordinal.isdecimal() else -1


class Cluster:
    """Calls in the namespace of the workloads, each CALL_S at most.

    They raise Refused, ConfigError, TimeoutError, and what aiohttp raises. `api` is for tests.
    """

    def __init__(self, settings: Callable[[], Kubernetes], api: Any = None) -> None:
        self._settings = settings
        self._api = api
        self._is_own_api = api is None

    async def close(self) -> None:
        """Close the connection; the next call opens another one."""
        if self._is_own_api and self._api is not None:
            api, self._api = self._api, None
            await api.close()

    # ---- workloads and pods

    async def scale(self, workload: str) -> Scale:
        """The scale of `statefulset/NAME` or `deployment/NAME`."""
        answer = await self._scale_call("read", "get", workload)
        return Scale(
            replicas=int((answer.get("spec") or {}).get("replicas") or 0),
            selector=str((answer.get("status") or {}).get("selector") or ""),
            version=str(answer["metadata"].get("resourceVersion") or ""),
        )

    async def set_scale(self, workload: str, seen: Scale, replicas: int) -> None:
        """Change the count, unless the workload is another one than `seen` (Refused, 409)."""
        body: dict[str, Any] = {"spec": {"replicas": replicas}}
        if seen.version:
            body["metadata"] = {"resourceVersion": seen.version}
        await self._scale_call("patch", "patch", workload, body=body, _content_type=MERGE_PATCH)

    async def pods(self, selector: str) -> list[Pod]:
        """The pods that a label selector matches, by name; none for an empty one."""
        if not selector:
            return []
        found = await self._core("list", "list_namespaced_pod", label_selector=selector)
        return sorted((_pod(entry) for entry in found["items"]), key=lambda pod: pod.name)

    async def annotate(self, pod: Pod, annotations: dict[str, str | None]) -> None:
        """Set annotations of a pod; None takes one away."""
        body = {"metadata": {"annotations": annotations}}
        more = {"body": body, "_content_type": MERGE_PATCH}
        await self._core("patch", "patch_namespaced_pod", pod.name, **more)

    # ---- the Lease

    async def lease(self, name: str) -> Lease | None:
        """The Lease as it is; None if there is none."""
        try:
            found: Lease = await self._coordination("get", "read_namespaced_lease", name)
            return found
        except Refused as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def create_lease(self, lease: Lease) -> None:
        """Make it; Refused with 409 if somebody was faster."""
        await self._coordination("create", "create_namespaced_lease", body=lease)

    async def replace_lease(self, lease: Lease) -> None:
        """Replace it; Refused with 409 if it has changed since it was read."""
        name = lease["metadata"]["name"]
        await self._coordination("update", "replace_namespaced_lease", name, body=lease)

    # ---- inside

    async def _scale_call(self, action: str, verb: str, workload: str, **more: Any) -> Any:
        from kubernetes_asyncio import client

        kind, _, name = workload.partition("/")
        middle = {"statefulset": "stateful_set", "deployment": "deployment"}[kind]
        call = f"{action}_namespaced_{middle}_scale"
        return await self._ask(client.AppsV1Api, verb, f"{kind}s/scale", call, name, **more)

    async def _core(self, verb: str, call: str, *name: str, **more: Any) -> Any:
        from kubernetes_asyncio import client

        return await self._ask(client.CoreV1Api, verb, "pods", call, *name, **more)

    async def _coordination(self, verb: str, call: str, *name: str, **more: Any) -> Any:
        from kubernetes_asyncio import client

        resource = "leases.coordination.k8s.io"
        return await self._ask(client.CoordinationV1Api, verb, resource, call, *name, **more)

    async def _ask(
        self, group: Any, verb: str, resource: str, call: str, *name: str, **more: Any
    ) -> Any:
        async with asyncio.timeout(CALL_S):
            if self._api is None:
                self._api = await kubernetes.connect()
            function = getattr(group(self._api), call)
            namespace = kubernetes.namespace_of(self._settings())
            answer = await function(*name, namespace=namespace, **more, _preload_content=False)
            try:
                text = await answer.read()
            finally:
                answer.close()
        if answer.status >= 400:
            message = message_of(text)
            raise Refused(answer.status, verb, resource, message, role=ROLE)
        return orjson.loads(text)


def _pod(entry: dict[str, Any]) -> Pod:
    meta = entry["metadata"]
    said = meta.get("annotations") or {}
    remaining = said.get(REMAINING)
    if remaining is not None:
        remaining = int(remaining) if remaining.isdecimal() else -1
    return Pod(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        is_terminating=bool(meta.get("deletionTimestamp")),
        drain=said.get(DRAIN),
        remaining=remaining,
    )
