"""Command line flags, made from the settings; flags of other routers name ours."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn, get_args, get_origin

from headrace.config import keys
from headrace.config.schema import Config

# Flags of vllm-router, smg, sglang-router, production-stack and LiteLLM -> what does it here
FOREIGN = {
    "--alias": "--model-alias A=B",
    "--api_base": "--replicas",
    "--backends": "--replicas",
    "--cb-success-threshold": "--health-success-threshold",
    "--debug": "--log-level debug",
    "--detailed_debug": "--log-level debug",
    "--disable-circuit-breaker": "health.passive_failures, set high",
    "--disable-retries": "--retry-max-retries 0",
    "--dynamic-config-json": "--config (read again on SIGHUP)",
    "--dynamic-config-yaml": "--config (read again on SIGHUP)",
    "--engine-stats-interval": "--scrape-interval-secs",
    "--health-check-endpoint": "health.path",
    "--k8s-label-selector": "--selector",
    "--k8s-namespace": "--service-discovery-namespace",
    "--k8s-port": "--service-discovery-port",
    "--keepalive_timeout": "--keepalive-secs",
    "--log-format": "--log-json",
    "--master-key": "--admin-api-key",
    "--num-workers": "--processes",
    "--num_workers": "--processes",
    "--otel-endpoint": "observability.otlp_endpoint",
    "--otlp-traces-endpoint": "observability.otlp_endpoint",
    "--request_timeout": "--request-timeout-secs",
    "--retry-backoff-multiplier": "--retry-initial-backoff-ms",
    "--retry-max-backoff-ms": "--retry-initial-backoff-ms",
    "--routing-logic": "--policy",
    "--routing-strategy": "--policy",
    "--ssl-certfile": "--tls-cert-path",
    "--ssl-keyfile": "--tls-key-path",
    "--ssl_certfile_path": "--tls-cert-path",
    "--ssl_keyfile_path": "--tls-key-path",
    "--static-aliases": "--model-alias A=B",
    "--static-backends": "--replicas",
    "--static-models": "replicas: [{url, models}]",
    "--worker-urls-file": "discovery.file",
    "--workers": "--processes",
}


class _ForeignFlag(argparse.Action):
    """Stops with the name of our own flag."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        ours = FOREIGN[str(option_string)]
        parser.error(f"{option_string} is a flag of another router; here it is {ours}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--config` and a flag for every setting that has one.

    A flag that is not given leaves no attribute, so that `load` can tell it from a default.
    """
    parser.add_argument("--config", metavar="FILE", help="YAML file with the settings")
    groups = {"": parser.add_argument_group("replicas")}
    for key in keys.walk(Config):
        if key.traits.flag is None:
            continue
        name = key.path.partition(".")[0] if "." in key.path else ""
        if name not in groups:
            groups[name] = parser.add_argument_group(name)
        groups[name].add_argument(
            key.traits.flag,
            *key.traits.flag_aliases,
            dest=key.path,
            default=argparse.SUPPRESS,
            help=_help(key),
            **_shape(key),
        )
    for flag in FOREIGN:
        parser.add_argument(
            flag,
            action=_ForeignFlag,
            nargs="*",
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )


def _shape(key: keys.Key) -> dict[str, Any]:
    kind = key.type
    if get_origin(kind) is dict:
        return {"nargs": "+", "action": "extend", "metavar": "NAME=VALUE"}
    if get_origin(kind) is tuple:
        return {"nargs": "+", "action": "extend", "metavar": _metavar(key)}
    if bool in (kind, *get_args(kind)):
        return {"nargs": "?", "const": "true", "metavar": _metavar(key)}
    return {"metavar": _metavar(key)}


def _metavar(key: keys.Key) -> str:
    name = key.path.rpartition(".")[2]
    kinds = (key.type, *get_args(key.type))
    if bool in kinds:
        return "FILE" if str in kinds else "BOOL"
    if name.endswith("_s") and float in kinds and not name.endswith("per_s"):
        return "SECONDS" if key.traits.flag_scale == 1 else "MS"
    if float in kinds or int in kinds:
        return "BYTES" if name.endswith("_bytes") else "N"
    special = {"replicas": "URL", "tls_cert": "FILE", "tls_key": "FILE", "cors_origins": "ORIGIN"}
    return special.get(name, name.rpartition("_")[2].removesuffix("s").upper())


def _help(key: keys.Key) -> str:
    text = key.traits.text
    words = [word for word in get_args(key.type) if isinstance(word, str)]
    if len(words) > 1:
        text += f" One of: {', '.join(words)}."
    default = key.default
    if key.traits.flag_scale != 1:
        default = default / key.traits.flag_scale
    if default not in (None, (), {}, False):
        shown = " ".join(default) if isinstance(default, tuple) else default
        text += f" Default: {shown:g}." if isinstance(shown, float) else f" Default: {shown}."
    return text.replace("%", "%%")
