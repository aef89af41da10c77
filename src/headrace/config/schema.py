"""All settings of the gateway, each in this file and nowhere else.

One struct a section; everything is frozen, so that a configuration can be shared and swapped whole.
Durations are seconds, sizes bytes. The file is long because it is the one list of settings.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import Any, Literal

import msgspec

from headrace.config import checks
from headrace.config.keys import setting
from headrace.config.urls import replica_id

Policy = Literal[
    "cost_aware",
    "cache_aware",
    "prefix_hash",
    "consistent_hash",
    "least_load",
    "power_of_two",
    "round_robin",
    "random",
]
LogLevel = Literal["debug", "info", "warning", "error"]
Ratio = float

MAX_REPLICAS = 1024
LOCAL_ADMIN = "127.0.0.1"
MEBIBYTE = 1 << 20


def section(kind: type[Any]) -> Any:
    """A field that holds a section with its defaults."""
    return msgspec.field(default_factory=kind)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections."""


class ReplicaConfig(Section, frozen=True, kw_only=True):
    """One entry of `replicas`; a plain string stands for an entry with that URL."""

    url: A[
        str,
        setting(
            "Base URL of the engine: http or https, host, port, perhaps a path.",
            check=checks.replica_url,
        ),
    ]
    models: A[tuple[str, ...] | None, setting("Replaces the models that the replica lists.")] = None
    weight: A[float, setting("Relative speed; 0: only if nobody else can.", ge=0)] = 1.0
    max_concurrency: A[
        int | None, setting("Instead of `admission.max_concurrency`.", ge=1, le=1_000_000)
    ] = None
    max_queue: A[int | None, setting("Instead of `admission.max_queue`.", ge=0)] = None
    metrics_url: A[
        str | None,
        setting("The engine's metrics page, if not `/metrics` at `url`.", check=checks.page_url),
    ] = None
    dcgm_url: A[
        str | None,
        setting("The whole URL of the DCGM exporter of its host.", check=checks.page_url),
    ] = None
    gpus: A[
        tuple[int | str, ...] | None,
        setting("DCGM indices or UUIDs of its GPUs; without it every GPU of that page is its own."),
    ] = None
    kv_events_port: A[
        int | None, setting("Instead of `control.kv_events_port`.", ge=1, le=65535)
    ] = None
    kv_replay_port: A[
        int | None, setting("Instead of `control.kv_replay_port`.", ge=1, le=65535)
    ] = None
    api_key: A[
        str | None,
        setting(
            "Sent to the replica in place of the client's Authorization.",
            secret=True,
            check=checks.secret_key,
        ),
    ] = None
    drain: A[
        str | None,
        setting(
            "A reason to drain it: no new requests go there, running ones end by themselves.",
            check=checks.reason,
        ),
    ] = None
    labels: A[dict[str, str], setting("Free labels, shown in the admin API.")] = msgspec.field(
        default_factory=dict
    )

    @property
    def id(self) -> str:
        """`host:port` plus the path, as it stands in labels, headers and JSON."""
        return replica_id(self.url)


class UpstreamTls(Section, frozen=True, kw_only=True):
    """How `https` replicas are verified."""

    ca: A[str | None, setting("File of CA certificates; without it the system's.")] = None
    cert: A[str | None, setting("Client certificate file, for replicas that ask for one.")] = None
    key: A[str | None, setting("Private key file of the client certificate.")] = None
    insecure: A[bool, setting("Do not verify the replicas' certificates.")] = False


class Server(Section, frozen=True, kw_only=True):
    """Listening addresses, processes and limits of the data port."""

    host: A[str, setting("Address of the data port.", flag="--host", check=checks.host)] = "0.0.0.0"
    port: A[int, setting("Data port.", flag="--port", ge=0, le=65535)] = 30000
    admin_host: A[
        str,
        setting(
            "Address of metrics, admin API and dashboard; not loopback needs an admin key.",
            flag="--admin-host",
            aliases=("--prometheus-host",),
            check=checks.host,
        ),
    ] = LOCAL_ADMIN
    admin_port: A[
        int,
        setting("Admin port.", flag="--admin-port", aliases=("--prometheus-port",), ge=0, le=65535),
    ] = 29000
    processes: A[
        int | Literal["auto"],
        setting(
            "Data-plane processes; auto: the CPUs, at most 8; "
            "0: data plane and control plane in one process and loop.",
            flag="--processes",
            ge=0,
            le=64,
        ),
    ] = "auto"
    max_body_bytes: A[
        int, setting("Request bodies above it get 413.", flag="--max-payload-size", ge=1)
    ] = 256 * MEBIBYTE
    max_header_bytes: A[int, setting("Request heads above it get 431.", ge=1024)] = 65536
    max_buffered_bytes: A[
        int, setting("Kept bodies per process; beyond it reading of further ones pauses.", ge=1)
    ] = 1024 * MEBIBYTE
    blocked_paths: A[
        tuple[str, ...],
        setting(
            "Engine administration that clients get 404 for, in every spelling.", check=checks.path
        ),
    ] = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
    pass_dp_rank: A[bool, setting("Let a client's `x-data-parallel-rank` reach the replica.")] = (
        False
    )
    upstream_tls: UpstreamTls = section(UpstreamTls)
    expose_metrics: A[bool, setting("Also answer `GET /metrics` on the data port.")] = False
    drain_settle_s: A[
        float, setting("After SIGTERM the listener goes on accepting for so long.", ge=0)
    ] = 5.0
    drain_timeout_s: A[
        float,
        setting(
            "Streams in flight get so long to end after SIGTERM or a drain.",
            flag="--drain-timeout-secs",
            aliases=("--shutdown-grace-period-secs",),
            ge=0,
        ),
    ] = 300.0
    take_over_path: A[
        str | None,
        setting(
            "Unix socket at which `serve --take-over` finds the running gateway; "
            "without it one in a directory of this user, named after the admin port."
        ),
    ] = None
    tls_cert: A[
        str | None, setting("Certificate file of the data port.", flag="--tls-cert-path")
    ] = None
    tls_key: A[str | None, setting("Private key file of the data port.", flag="--tls-key-path")] = (
        None
    )
    cors_origins: A[
        tuple[str, ...],
        setting(
            "Origins whose browser pages may call; `*`: all.",
            flag="--cors-allowed-origins",
            check=checks.origin,
        ),
    ] = ()
    request_id_headers: A[
        tuple[str, ...],
        setting(
            "Request headers that carry the request's id, first one wins.",
            flag="--request-id-headers",
            check=checks.header_name,
        ),
    ] = ("x-request-id", "x-correlation-id")


class Routing(Section, frozen=True, kw_only=True):
    """How a replica is chosen."""

    policy: A[
        Policy,
        setting(
            "Routing policy.",
            flag="--policy",
            values={"consistent_hashing": "consistent_hash", "roundrobin": "round_robin"},
        ),
    ] = "cost_aware"
    session_headers: A[
        tuple[str, ...],
        setting(
            "Headers with the session key, first one wins; then body `session_id`, then `user`.",
            flag="--session-header",
            aliases=("--session-key",),
            check=checks.header_name,
        ),
    ] = ("x-smg-routing-key", "x-session-id", "x-dynamo-session-id", "x-olla-session-id")
    load_factor: A[
        float,
        setting(
            "Bounded-load hashing: limit as a multiple of the mean.", flag="--load-factor", ge=1
        ),
    ] = 1.25
    foreign_smoothing_s: A[
        float, setting("Time constant for the load of other gateways; 0: none.", ge=0)
    ] = 15.0
    prefix_table_bytes: A[int, setting("Memory of the prefix residency table.", ge=65536)] = (
        64 * MEBIBYTE
    )
    gateways: A[
        int,
        setting(
            "Gateways that share these replicas; above 1 near-equal choices agree between them.",
            flag="--gateways",
            ge=1,
            le=1024,
        ),
    ] = 1
    model_aliases: A[
        dict[str, str],
        setting("The client says A, the replica gets B; no chains.", flag="--model-alias"),
    ] = msgspec.field(default_factory=dict)


class Admission(Section, frozen=True, kw_only=True):
    """When a request waits or is refused."""

    max_concurrency: A[
        int,
        setting(
            "Requests in flight per replica that count as 100 % load.",
            flag="--max-concurrency",
            ge=1,
            le=1_000_000,
        ),
    ] = 256
    overload_ratio: A[
        Ratio,
        setting(
            "429 when the load of every eligible replica is above it.",
            flag="--overload-ratio",
            gt=0,
        ),
    ] = 0.8
    max_queue: A[
        int,
        setting(
            "Engine queue depth above which a replica takes no new request; 0: off.",
            flag="--max-queue",
            ge=0,
        ),
    ] = 0
    queue_size: A[
        int,
        setting(
            "Waiting room of the gateway before 429, over all processes; 0: none.",
            flag="--queue-size",
            ge=0,
        ),
    ] = 0
    queue_timeout_s: A[
        float, setting("Longest wait in the waiting room.", flag="--queue-timeout-secs", gt=0)
    ] = 10.0
    max_concurrent_requests: A[
        int,
        setting(
            "Requests in the whole gateway, 429 above; 0: off.",
            flag="--max-concurrent-requests",
            ge=0,
        ),
    ] = 0


class Retry(Section, frozen=True, kw_only=True):
    """Second tries, within a budget over all processes."""

    max_retries: A[
        int,
        setting(
            "Retries per request, each on a replica not tried yet; above 1 is not advised.",
            flag="--retry-max-retries",
            ge=0,
            le=3,
        ),
    ] = 1
    budget_ratio: A[
        Ratio, setting("Retries that each request pays for.", flag="--retry-budget-ratio", ge=0)
    ] = 0.1
    min_per_s: A[
        float,
        setting("Retries per second that are always paid for.", flag="--retry-min-per-sec", ge=0),
    ] = 3.0
    before_first_token: A[
        bool,
        setting(
            "Also send once more, elsewhere, what a dying replica had not begun to answer.",
            flag="--retry-before-first-token",
        ),
    ] = False
    backoff_s: A[
        float,
        setting(
            "Wait before the first retry (the flag is in ms).",
            flag="--retry-initial-backoff-ms",
            scale=0.001,
            ge=0,
        ),
    ] = 0.05
    jitter: A[
        float,
        setting(
            "Share of the wait that is left to chance.", flag="--retry-jitter-factor", ge=0, le=1
        ),
    ] = 1.0


class Timeouts(Section, frozen=True, kw_only=True):
    """Limits on waiting, for clients and replicas."""

    connect_s: A[
        float, setting("Connecting to a replica.", flag="--connect-timeout-secs", gt=0)
    ] = 2.0
    first_byte_s: A[
        float,
        setting(
            "Request sent until the first real event of the answer; 0: off.",
            flag="--first-byte-timeout-secs",
            ge=0,
        ),
    ] = 0.0
    idle_s: A[
        float,
        setting(
            "Between body bytes from the replica; 0: off.",
            flag="--idle-timeout-secs",
            ge=0,
        ),
    ] = 300.0
    request_s: A[
        float,
        setting("A request in total; 0: off.", flag="--request-timeout-secs", ge=0),
    ] = 0.0
    write_s: A[
        float, setting("A client that does not read; 0: off.", flag="--write-timeout-secs", ge=0)
    ] = 60.0
    client_header_s: A[
        float,
        setting(
            "Absolute deadline for a request's head, 408 after it.",
            flag="--client-header-timeout-secs",
            gt=0,
        ),
    ] = 15.0
    client_body_s: A[
        float,
        setting(
            "Absolute deadline for a request's body, 408 after it.",
            flag="--client-body-timeout-secs",
            gt=0,
        ),
    ] = 120.0
    keepalive_s: A[
        float, setting("An idle client connection is kept so long.", flag="--keepalive-secs", ge=0)
    ] = 75.0
    upstream_idle_s: A[
        float,
        setting("A pooled replica connection is kept so long; vLLM closes its own at 5 s.", ge=0),
    ] = 4.0


class Health(Section, frozen=True, kw_only=True):
    """When a replica is taken out, and when it returns."""

    path: A[str, setting("Path of the health check.", check=checks.path)] = "/health"
    interval_s: A[
        float,
        setting(
            "Between health checks (and readings of the model list).",
            flag="--health-check-interval-secs",
            gt=0,
        ),
    ] = 5.0
    timeout_s: A[
        float, setting("For one health check.", flag="--health-check-timeout-secs", gt=0)
    ] = 5.0
    failure_threshold: A[
        int,
        setting("Failed checks in a row that eject.", flag="--health-failure-threshold", ge=1),
    ] = 3
    success_threshold: A[
        int,
        setting("Good checks in a row that readmit.", flag="--health-success-threshold", ge=1),
    ] = 2
    probe_interval_s: A[
        float,
        setting(
            "Between short real inferences, if no traffic proves life; 0: off.",
            flag="--probe-interval-secs",
            ge=0,
        ),
    ] = 30.0
    probe_timeout_s: A[float, setting("A probe that takes longer has failed.", gt=0)] = 10.0
    probe_slow_s: A[float, setting("A probe that takes longer means degraded.", gt=0)] = 3.0
    passive_failures: A[
        int,
        setting(
            "Failures of live requests in a row that eject.", flag="--cb-failure-threshold", ge=1
        ),
    ] = 5
    eject_s: A[
        float,
        setting(
            "An ejected replica stays out at least so long.",
            flag="--cb-timeout-duration-secs",
            ge=0,
        ),
    ] = 10.0
    slow_start_s: A[float, setting("Ramp after recovery; 0: none.", ge=0)] = 10.0
    max_ejected_ratio: A[
        Ratio, setting("Live traffic alone never ejects more than this share.", ge=0, le=1)
    ] = 0.5


class KvTokenizer(Section, frozen=True, kw_only=True):
    """One entry of `control.kv_tokenizers`: how the tokens of a model are spelled."""

    model: A[str, setting("Name of the model.")]
    path: A[str, setting("Its `tokenizer.json`, or the folder with it.")]


class Control(Section, frozen=True, kw_only=True):
    """Reading the engines' own metrics."""

    scrape_interval_s: A[
        float, setting("Between readings of `/metrics`.", flag="--scrape-interval-secs", gt=0)
    ] = 1.0
    scrape_timeout_s: A[float, setting("For one reading.", gt=0)] = 1.0
    stale_after_s: A[float, setting("Older figures are unknown, never idle.", gt=0)] = 5.0
    kv_events_port: A[
        int | None,
        setting(
            "Port of the engines' KV-event publisher (vLLM: 5557), for replicas that join from then"
            " on; without it nobody listens. Needs the extra `kv-events`.",
            ge=1,
            le=65535,
        ),
    ] = None
    kv_replay_port: A[
        int | None,
        setting("Port at which the engines replay missed KV events.", ge=1, le=65535),
    ] = None
    kv_tokenizers: A[
        tuple[KvTokenizer, ...],
        setting(
            "For the models whose KV events are read: `{model, path}`. Without it events only tell"
            " of restarts, cleared caches and how much is stored."
        ),
    ] = ()


class Hardware(Section, frozen=True, kw_only=True):
    """Reading the DCGM exporters."""

    interval_s: A[
        float, setting("Between readings of a DCGM exporter.", flag="--dcgm-interval-secs", gt=0)
    ] = 5.0


class Auth(Section, frozen=True, kw_only=True):
    """Keys, and where replicas may come from."""

    api_keys: A[
        tuple[str, ...],
        setting(
            "Keys of the data port (`Authorization: Bearer` or `x-api-key`); none: open.",
            flag="--api-key",
            secret=True,
            check=checks.secret_key,
        ),
    ] = ()
    api_keys_file: A[
        str | None, setting("File with further keys, one a line; `#` begins a comment.")
    ] = None
    admin_api_key: A[
        str | None,
        setting(
            "Key of the admin port; required when its address is not loopback.",
            flag="--admin-api-key",
            secret=True,
            check=checks.secret_key,
        ),
    ] = None
    replica_networks: A[
        tuple[str, ...] | None,
        setting(
            "Networks (CIDR) that replicas registered at run time may lie in; "
            "without it any but link-local.",
            check=checks.network,
        ),
    ] = None


class Observability(Section, frozen=True, kw_only=True):
    """Logs, usage and tracing."""

    log_level: A[LogLevel, setting("Least level that is logged.", flag="--log-level")] = "info"
    log_json: A[bool, setting("Log lines are JSON.", flag="--log-json")] = False
    access_log: A[
        bool | str,
        setting(
            "One JSON line a request: true (the bare flag) to stdout, or a file.",
            flag="--access-log",
        ),
    ] = False
    inject_usage: A[
        bool, setting("Ask the engine for usage, and take it out for clients that did not ask.")
    ] = False
    otlp_endpoint: A[
        str | None,
        setting("OTLP/HTTP endpoint for traces; none: no tracing.", check=checks.page_url),
    ] = None


class Kubernetes(Section, frozen=True, kw_only=True):
    """Replicas from EndpointSlices."""

    enabled: A[bool, setting("Find replicas in Kubernetes.", flag="--service-discovery")] = False
    selector: A[
        dict[str, str],
        setting("Labels that the services or pods must have.", flag="--selector"),
    ] = msgspec.field(default_factory=dict)
    namespace: A[
        str | None,
        setting("Namespace; without it the gateway's own.", flag="--service-discovery-namespace"),
    ] = None
    port: A[
        int | None,
        setting(
            "Port of the engines; without it the slice's first.",
            flag="--service-discovery-port",
            ge=1,
            le=65535,
        ),
    ] = None


class DnsName(Section, frozen=True, kw_only=True):
    """One entry of `discovery.dns`: every address of a name is a replica."""

    name: A[
        str, setting("Name to resolve (A, AAAA; SRV if it begins with `_`).", check=checks.host)
    ]
    port: A[
        int | None,
        setting("Port of the engines; SRV records bring theirs, and weights.", ge=1, le=65535),
    ] = None
    interval_s: A[
        float,
        setting(
            "Between look-ups; a TTL below it counts (with `pip install headrace[dns]`).", gt=0
        ),
    ] = 30.0


class ReplicaFile(Section, frozen=True, kw_only=True):
    """A file with a list of replicas, read again when it changes."""

    path: A[str | None, setting("YAML or JSON list with the same entries as `replicas`.")] = None


class Discovery(Section, frozen=True, kw_only=True):
    """Sources of replicas besides `replicas` and the admin API."""

    kubernetes: Kubernetes = section(Kubernetes)
    dns: A[
        tuple[DnsName, ...],
        setting("Names whose addresses are replicas: `{name, port, interval_s}`."),
    ] = ()
    file: ReplicaFile = section(ReplicaFile)


class AutoscaleModel(Section, frozen=True, kw_only=True):
    """One entry of `autoscale.models`: limits of one model."""

    model: A[str, setting("Name of the model.")]
    min_replicas: A[int, setting("Never fewer; 0: may be scaled to zero.", ge=0, le=1024)] = 1
    max_replicas: A[int, setting("Never more.", ge=1, le=1024)] = MAX_REPLICAS
    workload: A[
        str | None,
        setting(
            "`statefulset/NAME` or `deployment/NAME` in the namespace of `discovery.kubernetes`: "
            "its scale follows the plan. Without it the plan is only published.",
            check=checks.workload,
        ),
    ] = None


class Autoscale(Section, frozen=True, kw_only=True):
    """How many replicas there should be, published as `headrace_desired_replicas`."""

    history_path: A[
        str | None, setting("SQLite file with the load history; without it nothing outlives us.")
    ] = None
    prometheus_url: A[
        str | None,
        setting(
            "Prometheus that scrapes the gateways: gaps of the history are filled from it.",
            check=checks.page_url,
        ),
    ] = None
    startup_s: A[
        float, setting("Start-up time of a replica until its own starts are learned.", ge=0)
    ] = 180.0
    lead_minutes: A[
        float, setting("Capacity for a daily peak is ready so early.", ge=0, le=1440)
    ] = 30.0
    headroom_ratio: A[Ratio, setting("Capacity above the forecast.", ge=0, le=10)] = 0.2
    utilization_ceiling: A[
        Ratio, setting("Utilisation above which replicas are added.", gt=0, le=1)
    ] = 0.8
    queue_per_replica: A[
        float, setting("Requests waiting in the gateway for each replica that add one.", gt=0)
    ] = 1.0
    down_window_s: A[
        float, setting("Nothing shrinks before the need was lower for so long.", ge=0)
    ] = 600.0
    down_step: A[int, setting("Replicas taken away at once.", ge=1, le=1024)] = 1
    min_replicas: A[int, setting("Never fewer for a model; 0: may be scaled to zero.", ge=0)] = 1
    max_replicas: A[int, setting("Never more for a model.", ge=1, le=1024)] = MAX_REPLICAS
    models: A[
        tuple[AutoscaleModel, ...],
        setting("Limits of single models: `{model, min_replicas, max_replicas, workload}`."),
    ] = ()
    hold_size: A[
        int,
        setting(
            "Requests that wait, over all processes, for a replica of a model that `models` gives "
            "`min_replicas: 0`; 0: they are refused.",
            ge=0,
        ),
    ] = 256
    hold_timeout_s: A[float, setting("A request waits so long for that replica.", gt=0)] = 300.0

    @property
    def on_demand(self) -> tuple[str, ...]:
        """Models that are known while they have no replica."""
        return tuple(entry.model for entry in self.models if entry.min_replicas == 0)

    @property
    def holds(self) -> bool:
        """Whether requests may wait for a replica to come up."""
        return self.hold_size > 0 and bool(self.on_demand)


class Config(Section, frozen=True, kw_only=True):
    """The whole configuration."""

    replicas: A[
        tuple[ReplicaConfig, ...],
        setting(
            f"The replicas, at most {MAX_REPLICAS}: URLs, or entries as below.",
            flag="--replicas",
            aliases=("--worker-urls",),
        ),
    ] = ()
    server: Server = section(Server)
    routing: Routing = section(Routing)
    admission: Admission = section(Admission)
    retry: Retry = section(Retry)
    timeouts: Timeouts = section(Timeouts)
    health: Health = section(Health)
    control: Control = section(Control)
    hardware: Hardware = section(Hardware)
    auth: Auth = section(Auth)
    observability: Observability = section(Observability)
    discovery: Discovery = section(Discovery)
    autoscale: Autoscale = section(Autoscale)
