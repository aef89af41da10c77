"""Every metric of headrace, once: name, kind, labels, help.

The collector, the documentation and the files in deploy/ follow it.
"""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """One metric family; `name` without the prefix and, for counters, without `_total`."""

    name: str
    kind: str  # counter, gauge, histogram
    labels: tuple[str, ...]
    help: str


PREFIX = "headrace_"

METRICS = (
    Metric("requests", "counter", ("model", "endpoint", "outcome", "code"), "Requests ended."),
    Metric("request_duration_seconds", "histogram", ("model",), "Request read to answer sent."),
    Metric(
        "ttft_seconds",
        "histogram",
        ("model", "replica"),
        "Time to the first token of streamed requests.",
    ),
    Metric("tpot_seconds", "histogram", ("model",), "Mean time per output token, by request."),
    Metric("itl_seconds", "histogram", ("model",), "Time between token events, sampled."),
    Metric("overhead_seconds", "histogram", (), "Request read to request written to the replica."),
    Metric("prompt_tokens", "counter", ("model",), "Prompt tokens, as replicas counted them."),
    Metric("completion_tokens", "counter", ("model",), "Output tokens, as replicas counted them."),
    Metric("estimated_prompt_tokens", "counter", ("model",), "Prompt tokens as estimated."),
    Metric("retries", "counter", ("reason",), "Second attempts."),
    Metric("retry_budget_balance", "gauge", (), "Retries that may be made at once."),
    Metric("rejected", "counter", ("reason",), "Requests refused by the gateway."),
    Metric("queue_depth", "gauge", ("model",), "Requests waiting in the gateway."),
    Metric("queue_wait_seconds", "histogram", ("model",), "Time waited in the gateway."),
    Metric("decisions", "counter", ("policy", "reason"), "Replicas chosen."),
    Metric("replica_inflight", "gauge", ("replica", "model"), "Requests in flight, ours."),
    Metric(
        "replica_inflight_tokens",
        "gauge",
        ("replica", "model"),
        "Prompt and generated tokens in flight, ours.",
    ),
    Metric("replica_running", "gauge", ("replica", "model"), "Requests the engine runs."),
    Metric("replica_queue_depth", "gauge", ("replica", "model"), "Requests the engine queues."),
    Metric("replica_kv_usage", "gauge", ("replica", "model"), "KV cache in use, 0 to 1."),
    Metric(
        "replica_prefix_hit_ratio",
        "gauge",
        ("replica", "model"),
        "Prompt tokens found in the prefix cache, 0 to 1, over the last scrapes.",
    ),
    Metric("replica_weight", "gauge", ("replica", "model"), "Weight in force."),
    Metric(
        "replica_metrics_age_seconds",
        "gauge",
        ("replica", "model"),
        "Age of the engine's metrics.",
    ),
    Metric("replica_state", "gauge", ("replica", "state"), "1 for the state the replica is in."),
    Metric("replica_gpu_util", "gauge", ("replica", "gpu"), "GPU utilisation, 0 to 1."),
    Metric("replica_gpu_temp_celsius", "gauge", ("replica", "gpu"), "GPU temperature."),
    Metric("replica_gpu_dram_active", "gauge", ("replica", "gpu"), "DRAM active, 0 to 1."),
    Metric("replica_gpu_xid", "gauge", ("replica", "gpu"), "Last Xid event."),
    Metric("replica_gpu_ecc_dbe", "counter", ("replica", "gpu"), "Double-bit ECC errors."),
    Metric(
        "replica_nvlink_bytes_per_second", "gauge", ("replica", "gpu"), "NVLink traffic, both ways."
    ),
    Metric("probe_seconds", "histogram", ("replica", "kind"), "Duration of inference probes."),
    Metric("bad_samples", "counter", ("source",), "Scraped samples that were dropped."),
    Metric("desired_replicas", "gauge", ("model",), "Replicas the autoscaler asks for."),
    Metric(
        "forecast_load",
        "gauge",
        ("model",),
        "Load to be ready for; the present one without a history.",
    ),
    Metric("utilization", "gauge", ("model",), "Load over capacity, 0 to 1."),
    Metric(
        "discovered_replicas",
        "gauge",
        ("source",),
        "Replicas that a source lists; 0: it answers, but nothing matches.",
    ),
    Metric("processes", "gauge", (), "Data-plane processes configured."),
    Metric("config_generation", "gauge", (), "Counts configurations put in force."),
    Metric("config_errors", "counter", (), "Reloads refused."),
    Metric(
        "records_dropped",
        "counter",
        ("stage",),
        "Access records lost because the ring of a process, or the log's queue, was full.",
    ),
    Metric("control_errors", "counter", ("part",), "Turns of control loops that failed."),
    Metric("build_info", "gauge", ("version", "python"), "1, with the version."),
)


def sample_names() -> frozenset[str]:
    """Every sample name the page can carry, as queries and rules spell it."""
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
    return frozenset(PREFIX + m.name + s for m in METRICS for s in suffixes[m.kind])


BY_NAME = {metric.name: metric for metric in METRICS}
STATES = ("warming", "ready", "degraded", "draining", "drained", "ejected")
