"""Replicas from Kubernetes: EndpointSlices and pods (extra `headrace[kubernetes]`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace.config import Kubernetes, ReplicaConfig
from headrace.control.discovery import shapes, slices
from headrace.control.discovery.informer import Informer, Kind
from headrace.errors import ConfigError

log = logging.getLogger("headrace.discovery")

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
SETTLE_S = 0.05  # changes that come together are published together


async def connect() -> Any:
    """A client of the API server, by the pod's service account or else by the kubeconfig.

    Raises ConfigError when the extra is missing or neither is there.
    """
    try:
        from kubernetes_asyncio import client, config
    except ImportError as error:
        raise ConfigError(
            "discovery.kubernetes: needs `pip install headrace[kubernetes]`"
        ) from error
    settings = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        try:
            await config.load_kube_config(client_configuration=settings)
        except (config.ConfigException, OSError) as error:
            raise ConfigError(
                f"discovery.kubernetes: neither a service account nor a kubeconfig: {error}"
            ) from error
    return client.ApiClient(settings)


def namespace_of(settings: Kubernetes) -> str:
    """The namespace that is meant: the configured one, the pod's own, or `default`."""
    if settings.namespace:
        return settings.namespace
    try:
        return OWN_NAMESPACE.read_text().strip() or "default"
    except OSError:
        return "default"


async def follow(
    settings: Kubernetes, publish: Callable[[Sequence[ReplicaConfig]], None], api: Any = None
) -> None:
    """Publish the replicas whenever they change; `api` is for tests."""
    own = api is None
    api = await connect() if own else api
    from kubernetes_asyncio import client

    changed = asyncio.Event()
    arguments = {"namespace": namespace_of(settings)}
    endpoint_slices = Informer(
        Kind(
            "endpointslices.discovery.k8s.io",
            shapes.Slice,
            client.DiscoveryV1Api(api).list_namespaced_endpoint_slice,
            arguments,
        ),
        changed.set,
    )
    pods = Informer(
        Kind("pods", shapes.Pod, client.CoreV1Api(api).list_namespaced_pod, arguments), changed.set
    )
    last: Sequence[ReplicaConfig] | None = None
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(endpoint_slices.run())
            group.create_task(pods.run())
            while True:
                await changed.wait()
                await asyncio.sleep(SETTLE_S)
                changed.clear()
                if not (endpoint_slices.listed and pods.listed):
                    continue  # half a picture would remove replicas that are there
                found = slices.replicas(
                    endpoint_slices.objects.values(),
                    pods.objects.values(),
                    settings.selector,
                    settings.port,
                )
                if found != last:
                    _warn_of_none(found, settings, arguments["namespace"])
                    last = found
                    publish(found)
    finally:
        if own:
            await api.close()


def _warn_of_none(found: Sequence[ReplicaConfig], settings: Kubernetes, namespace: str) -> None:
    if not found:
        log.warning(
            "discovery.kubernetes.selector %s matches nothing in namespace %s",
            settings.selector,
            namespace,
        )
