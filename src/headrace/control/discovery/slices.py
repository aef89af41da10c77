"""From EndpointSlices and pods to replicas; pure.

A replica is an endpoint of a slice that the selector matches, or of any slice whose pod it matches,
or such a pod without any slice; a pod in several slices is one replica. It takes part while it is
ready and not terminating; an endpoint without a ready condition counts as ready, as the API says.
Annotations (or labels) of the pod say more:

    headrace.io/models: a,b          instead of the models that the replica lists
    headrace.io/weight: "0.5"
    headrace.io/port: "8000"
    headrace.io/gpus: 0,1            DCGM indices or UUIDs
    headrace.io/max-concurrency: "64"
    headrace.io/scheme: https
    headrace.io/drain: any reason    takes no new requests as long as that is there; `false`: none
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.config import MAX_REASON_CHARS, ReplicaConfig, parse_replicas
from headrace.config.checks import one_line
from headrace.control.discovery.dns import DEFAULT_PORT
from headrace.errors import ConfigError

log = logging.getLogger("headrace.discovery")

PREFIX = "headrace.io/"
EXPORTER_LABEL = ("app.kubernetes.io/name", "dcgm-exporter")
EXPORTER_PORT = 9400
POD_LABELS = ("kubernetes.namespace", "kubernetes.pod")  # labels of the replica, for its GPUs

Object = Mapping[str, Any]


class Found(NamedTuple):
    """An address, with the pod behind it if it is known."""

    address: str
    port: int
    pod: Object | None
    is_named: bool = False  # the selector matches its slice, not only its pod
    serves: bool = True


def matches(labels: Mapping[str, str] | None, selector: Mapping[str, str]) -> bool:
    """Whether all labels of the selector are there; an empty selector matches nothing by itself."""
    return bool(selector) and all((labels or {}).get(k) == v for k, v in selector.items())


def serves(endpoint: Object) -> bool:
    """Whether an endpoint takes new requests: ready or unknown, and not terminating."""
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and not conditions.get("terminating")


def pod_is_ready(pod: Object) -> bool:
    """Whether a pod says that it is ready and is not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def replicas(
    slices: Iterable[Object],
    pods: Iterable[Object],
    selector: Mapping[str, str],
    port: int | None = None,
) -> tuple[ReplicaConfig, ...]:
    """The replicas of a namespace, sorted by URL; what cannot be used is logged and left out."""
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    exporters = _exporters(by_name.values())
    entries: dict[str, dict[str, Any]] = {}
    for found in _youngest(_one_a_pod(_found(list(slices), by_name, selector, port))):
        entry = _entry(found, exporters)
        try:
            parse_replicas([entry])
        except ConfigError as error:
            log.warning("%s is not usable as a replica: %s", found.address, error)
        else:
            entries.setdefault(entry["url"], entry)
    return parse_replicas([entries[url] for url in sorted(entries)])


def _found(
    slices: list[Object], pods: Mapping[str, Object], selector: Mapping[str, str], port: int | None
) -> Iterable[Found]:
    in_slices = set()
    for part in slices:
        wanted = matches(part["metadata"].get("labels"), selector)
        ports = [p.get("port") for p in part.get("ports") or [] if p.get("port")]
        for endpoint in part.get("endpoints") or []:
            target = endpoint.get("targetRef") or {}
            pod = pods.get(target.get("name", "")) if target.get("kind") == "Pod" else None
            if not wanted and not (pod and matches(pod["metadata"].get("labels"), selector)):
                continue
            in_slices.add(target.get("name"))
            for address in endpoint.get("addresses") or []:
                number = port or (ports or [DEFAULT_PORT])[0]
                yield Found(address, number, pod, wanted, serves(endpoint))
    for name, pod in pods.items():
        address = (pod.get("status") or {}).get("podIP")
        labelled = matches(pod["metadata"].get("labels"), selector)
        if labelled and name not in in_slices and address and pod_is_ready(pod):
            yield Found(address, port or _container_port(pod) or DEFAULT_PORT, pod)


def _container_port(pod: Object) -> int | None:
    for container in (pod.get("spec") or {}).get("containers") or []:
        for declared in container.get("ports") or []:
            return int(declared["containerPort"])
    return None


def _one_a_pod(found: Iterable[Found]) -> list[Found]:
    """A pod is one replica, though it stands in the slices of several Services (its metrics, say)
    and of both address families: the Service that is meant, its first address, its first port.
    """
    best: dict[str, Found] = {}
    others = []
    for entry in found:
        if entry.pod is None:
            others.append(entry)
        elif (name := _name(entry)) not in best or _fits(entry) > _fits(best[name]):
            best[name] = entry
    return [entry for entry in (*others, *best.values()) if entry.serves]


def _fits(found: Found) -> tuple[bool, ...]:
    pod = found.pod or {}
    is_first = found.address == (pod.get("status") or {}).get("podIP")
    return found.is_named, is_first, found.port == _container_port(pod), found.serves


def _youngest(found: Iterable[Found]) -> list[Found]:
    """One entry an address: where two pods claim the same one, the younger has it."""
    best: dict[tuple[str, int], Found] = {}
    for entry in found:
        other = best.get((entry.address, entry.port))
        if other is not None and _name(entry) != _name(other):
            log.warning("%s is claimed by %s and %s", entry.address, _name(other), _name(entry))
        if other is None or _age_key(entry) > _age_key(other):
            best[entry.address, entry.port] = entry
    return list(best.values())


def _name(found: Found) -> str:
    return found.pod["metadata"]["name"] if found.pod else ""


def _age_key(found: Found) -> str:
    """ISO times of the API sort as text."""
    return str(found.pod["metadata"].get("creationTimestamp", "")) if found.pod else ""


def _exporters(pods: Iterable[Object]) -> dict[str, str]:
    """URL of the DCGM exporter by node."""
    key, value = EXPORTER_LABEL
    found = {}
    for pod in pods:
        address = (pod.get("status") or {}).get("podIP")
        if (pod["metadata"].get("labels") or {}).get(key) == value and address:
            node = (pod.get("spec") or {}).get("nodeName", "")
            found[node] = _url("http", address, EXPORTER_PORT, "/metrics")
    return found


def _url(scheme: str, address: str, port: int, path: str = "") -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{port}{path}"


def _entry(found: Found, exporters: Mapping[str, str]) -> dict[str, Any]:
    """A replica entry as the configuration spells it."""
    if found.pod is None:
        return {"url": _url("http", found.address, found.port)}
    meta = found.pod["metadata"]
    said = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}

    def say(name: str) -> str | None:
        return said.get(PREFIX + name)

    port = int(_number(say("port")) or found.port)
    entry: dict[str, Any] = {
        "url": _url(say("scheme") or "http", found.address, port),
        "labels": dict(zip(POD_LABELS, (meta.get("namespace", ""), meta["name"]), strict=True)),
    }
    if models := say("models") or say("model"):
        entry["models"] = [m.strip() for m in models.split(",") if m.strip()]
    if (weight := _number(say("weight"))) is not None:
        entry["weight"] = weight
    if (limit := _number(say("max-concurrency"))) is not None:
        entry["max_concurrency"] = limit
    if gpus := say("gpus"):
        entry["gpus"] = [_number(g) if g.isdigit() else g for g in gpus.replace(" ", "").split(",")]
    if reason := _drain_reason(say("drain")):
        entry["drain"] = reason
    exporter = exporters.get((found.pod.get("spec") or {}).get("nodeName", ""))
    if exporter:
        entry["dcgm_url"] = exporter
    return entry


def _drain_reason(text: str | None) -> str:
    """Why the pod is to be drained, as one line; empty: it is not."""
    if text is None or text.strip().lower() == "false":
        return ""
    clean = one_line(text).strip()
    return clean[:MAX_REASON_CHARS] or "drained by an annotation"


def _number(text: str | None) -> int | float | None:
    """A number from an annotation; None for what is none."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        log.warning("annotation value is no number: %r", text[:40])
        return None
    return int(value) if value == int(value) else value
