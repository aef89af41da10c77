"""The parts of Kubernetes' objects that discovery reads, and their types; for msgspec to check."""

from __future__ import annotations

from typing import Any

import msgspec

Labels = dict[str, str] | None


class Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    labels: Labels = None
    annotations: Labels = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None


class Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class Conditions(msgspec.Struct):
    ready: bool | None = None
    terminating: bool | None = None


class Target(msgspec.Struct):
    kind: str = ""
    name: str = ""


class Endpoint(msgspec.Struct):
    addresses: list[str] | None = None
    conditions: Conditions | None = None
    targetRef: Target | None = None


class Port(msgspec.Struct):
    port: int | None = None


class Slice(msgspec.Struct):
    """An EndpointSlice of discovery.k8s.io/v1."""

    metadata: Meta
    ports: list[Port] | None = None
    endpoints: list[Endpoint] | None = None


class ContainerPort(msgspec.Struct):
    containerPort: int


class Container(msgspec.Struct):
    ports: list[ContainerPort] | None = None


class Spec(msgspec.Struct):
    nodeName: str | None = None
    containers: list[Container] | None = None


class Status(msgspec.Struct):
    podIP: str | None = None
    conditions: list[Condition] | None = None


class Pod(msgspec.Struct):
    """A pod of v1."""

    metadata: Meta
    spec: Spec | None = None
    status: Status | None = None


def complaint(entry: Any, shape: type) -> str:
    """What is wrong with an object of the API, with the path to it; empty if nothing is."""
    try:
        msgspec.convert(entry, shape)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
