"""The configuration: one tree of settings (`schema`), read from file, environment and flags.

Usage: `add_arguments(parser)`, then `load(parser.parse_args(), os.environ)`.
"""

from headrace.config.checks import MAX_REASON_CHARS
from headrace.config.flags import add_arguments
from headrace.config.masking import masked
from headrace.config.rules import process_count
from headrace.config.schema import (
    MAX_REPLICAS,
    Admission,
    Auth,
    Autoscale,
    AutoscaleModel,
    Config,
    Control,
    Discovery,
    DnsName,
    Hardware,
    Health,
    Kubernetes,
    Observability,
    ReplicaConfig,
    ReplicaFile,
    Retry,
    Routing,
    Server,
    Timeouts,
    UpstreamTls,
)
from headrace.config.sources import config_path, load, load_replicas, parse, parse_replicas
from headrace.config.urls import is_loopback, normalize, replica_id

__all__ = [
    "MAX_REASON_CHARS",
    "MAX_REPLICAS",
    "Admission",
    "Auth",
    "Autoscale",
    "AutoscaleModel",
    "Config",
    "Control",
    "Discovery",
    "DnsName",
    "Hardware",
    "Health",
    "Kubernetes",
    "Observability",
    "ReplicaConfig",
    "ReplicaFile",
    "Retry",
    "Routing",
    "Server",
    "Timeouts",
    "UpstreamTls",
    "add_arguments",
    "config_path",
    "is_loopback",
    "load",
    "load_replicas",
    "masked",
    "normalize",
    "parse",
    "parse_replicas",
    "process_count",
    "replica_id",
]
