"""What must hold between settings, and what is worked out once: spellings, key files, CPUs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headrace.config import checks
from headrace.config.reader import Problems
from headrace.config.schema import (
    MAX_REPLICAS,
    Autoscale,
    AutoscaleModel,
    Config,
    ReplicaConfig,
    Server,
)
from headrace.config.urls import is_loopback, normalize

MAX_AUTO_PROCESSES = 8
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def process_count(server: Server, cpu_max: Path = CPU_MAX) -> int:
    """`server.processes` as a number: `auto` is the CPUs this process may use, at most 8."""
    if server.processes != "auto":
        return server.processes
    return min(MAX_AUTO_PROCESSES, len(os.sched_getaffinity(0)), _cpu_quota(cpu_max))


def _cpu_quota(cpu_max: Path) -> int:
    """CPUs that a container's limit is worth, rounded up; without a limit as many as wanted."""
    try:
        quota, period = cpu_max.read_text(encoding="ascii").split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no cgroup v2, or `max`
        return MAX_AUTO_PROCESSES


def normalized(replicas: Iterable[ReplicaConfig]) -> tuple[ReplicaConfig, ...]:
    """The entries with their URLs in the one spelling."""
    return tuple(msgspec.structs.replace(r, url=normalize(r.url)) for r in replicas)


def resolve(config: Config, problems: Problems) -> Config:
    """The configuration with key file read, URLs in one spelling and header names in lower case."""
    keys = dict.fromkeys((*config.auth.api_keys, *_file_keys(config, problems)))
    return msgspec.structs.replace(
        config,
        replicas=normalized(config.replicas),
        auth=msgspec.structs.replace(config.auth, api_keys=tuple(keys)),
        server=msgspec.structs.replace(
            config.server, request_id_headers=_lower(config.server.request_id_headers)
        ),
        routing=msgspec.structs.replace(
            config.routing, session_headers=_lower(config.routing.session_headers)
        ),
    )


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.lower() for name in names))


def _file_keys(config: Config, problems: Problems) -> list[str]:
    path = config.auth.api_keys_file
    if path is None:
        return []
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        problems.add("auth.api_keys_file", path, f"cannot be read: {error.strerror}")
        return []
    except UnicodeDecodeError:
        problems.add("auth.api_keys_file", path, "is not UTF-8 text")
        return []
    keys = [line for line in lines if line and not line.startswith("#")]
    for reason in filter(None, map(checks.secret_key, keys)):
        problems.add("auth.api_keys_file", path, reason)
    if not keys:  # a gateway that was to be closed must not stand open
        problems.add("auth.api_keys_file", path, "holds no key")
    return keys


def check(config: Config, problems: Problems) -> None:
    """Add a problem for everything that a single key cannot tell."""
    problems.lines.extend(replica_problems(config.replicas))
    _check_sources(config, problems)
    _check_listeners(config, problems)
    _check_tls(config, problems)
    _check_dns(config, problems)
    _check_aliases(config, problems)
    _check_autoscale(config, problems)
    control = config.control
    if control.stale_after_s < control.scrape_interval_s:
        problems.add(
            "control.stale_after_s",
            control.stale_after_s,
            f"must not be below control.scrape_interval_s ({control.scrape_interval_s:g})",
        )


def replica_problems(replicas: tuple[ReplicaConfig, ...]) -> list[str]:
    """A line for too many entries, and one for each replica that is named twice."""
    problems = Problems()
    if len(replicas) > MAX_REPLICAS:
        problems.note("replicas", f"{len(replicas)} entries; at most {MAX_REPLICAS}")
    ids = set()
    for index, replica in enumerate(replicas):
        if replica.id in ids:
            reason = f"replica {replica.id} is given twice"
            problems.add(f"replicas[{index}].url", replica.url, reason)
        ids.add(replica.id)
    return problems.lines


def _check_sources(config: Config, problems: Problems) -> None:
    found = config.discovery
    if config.replicas or found.kubernetes.enabled or found.dns or found.file.path:
        return
    problems.note(
        "replicas",
        "at least one source of replicas is needed: --replicas URL, or one of discovery.dns, "
        "discovery.file, discovery.kubernetes",
    )


def _check_listeners(config: Config, problems: Problems) -> None:
    server = config.server
    if server.port and server.port == server.admin_port:
        problems.add("server.admin_port", server.admin_port, "is the data port too")
    if not is_loopback(server.admin_host) and config.auth.admin_api_key is None:
        problems.add(
            "server.admin_host",
            server.admin_host,
            "is not loopback: auth.admin_api_key (--admin-api-key) is required",
        )


def _check_tls(config: Config, problems: Problems) -> None:
    server, upstream = config.server, config.server.upstream_tls
    pairs = [
        ("server.tls_cert", server.tls_cert, "server.tls_key", server.tls_key),
        ("server.upstream_tls.cert", upstream.cert, "server.upstream_tls.key", upstream.key),
    ]
    for cert_name, cert, key_name, key in pairs:
        if (cert is None) != (key is None):
            given, missing = (key_name, cert_name) if cert is None else (cert_name, key_name)
            problems.note(given, f"needs {missing} too")
    files = [(name, path) for pair in pairs for name, path in (pair[:2], pair[2:])]
    for name, path in [*files, ("server.upstream_tls.ca", upstream.ca)]:
        if path is not None and not os.access(str(path), os.R_OK):
            problems.add(str(name), path, "cannot be read")
    if not problems.lines:
        _check_certificates(server, problems)


def _check_certificates(server: Server, problems: Problems) -> None:
    from headrace import tls  # brings in sockets, which the library does without

    upstream = server.upstream_tls
    try:
        place, path = "server.tls_cert", server.tls_cert
        if path is not None:
            tls.server_context(path, server.tls_key)
        place, path = "server.upstream_tls", upstream.ca or upstream.cert
        if path is not None:
            tls.client_context(upstream)
    except OSError as error:
        problems.add(place, path, f"cannot be used: {error}")


def _check_dns(config: Config, problems: Problems) -> None:
    for index, entry in enumerate(config.discovery.dns):
        if entry.port is None and not entry.name.startswith("_"):
            problems.note(f"discovery.dns[{index}]", "needs a port (only SRV names bring one)")


def _check_aliases(config: Config, problems: Problems) -> None:
    aliases = config.routing.model_aliases
    for name, model in aliases.items():
        place = "routing.model_aliases"
        if not name or not model:
            problems.add(place, f"{name}={model}", "both names must not be empty")
        elif model in aliases:
            problems.add(place, f"{name}={model}", f"{model!r} is an alias itself; no chains")


def _check_autoscale(config: Config, problems: Problems) -> None:
    limits = config.autoscale
    entries: list[tuple[str, Autoscale | AutoscaleModel]] = [("autoscale", limits)]
    entries += [(f"autoscale.models[{index}]", one) for index, one in enumerate(limits.models)]
    for place, entry in entries:
        if entry.min_replicas > entry.max_replicas:
            reason = f"is above {place}.max_replicas ({entry.max_replicas})"
            problems.add(f"{place}.min_replicas", entry.min_replicas, reason)
