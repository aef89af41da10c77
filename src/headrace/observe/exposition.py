"""The metrics page: a prometheus_client collector over the segment and the registry."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headrace import __version__
from headrace.core.balancer import POLICIES, REASONS
from headrace.core.segment import OUTCOME_NAMES, unpack_series
from headrace.endpoints import ENDPOINTS
from headrace.observe import reasons
from headrace.observe.records import named
from headrace.observe.table import BY_NAME, PREFIX, STATES

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
SERIES_REQUESTS, SERIES_DECISIONS, SERIES_REJECTED, SERIES_RETRIES, SERIES_OTHER = 1, 2, 3, 4, 255


def render(control: Control, accept: str) -> tuple[bytes, str]:
    """The page and its content type, text or OpenMetrics by the Accept header."""
    encoder, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(control))
    return encoder(registry), content_type


class _Families:
    """Families made on first use, in the order of the table."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        family = self.made.get(name)
        if family is None:
            metric = BY_NAME[name]
            family = FAMILIES[metric.kind](PREFIX + name, metric.help, labels=metric.labels)
            self.made[name] = family
        return family

    def histogram(self, name: str, labels: list[str], hist: dict[str, Any]) -> None:
        total = 0
        buckets = []
        for bound, count in zip([*hist["bounds"], math.inf], hist["buckets"], strict=True):
            total += count
            buckets.append(("+Inf" if bound == math.inf else repr(float(bound)), total))
        self[name].add_metric(labels, buckets, hist["sum"])

    def gauge(self, name: str, labels: list[str], value: float | None) -> None:
        """A sample, unless the value is unknown."""
        if value is not None and not math.isnan(value):
            self[name].add_metric(labels, value)


class _Page(Collector):
    """One scrape."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.models = {number: name for name, number in control.registry.model_ids.by_name.items()}

    def collect(self) -> Iterator[Family]:
        """Every family of the table that has samples."""
        families = _Families()
        self._counters(families)
        self._models(families)
        self._pairs(families)
        self._replicas(families)
        self._gateway(families)
        for name in BY_NAME:
            if name in families.made:
                yield families.made[name]

    def _counters(self, f: _Families) -> None:
        samples: dict[tuple[str, tuple[str, ...]], int] = {}
        for key, count in self.control.segment.counters().items():
            name, labels = self._labels(*unpack_series(key))
            samples[name, labels] = samples.get((name, labels), 0) + count
        for name in ("requests", "rejected", "retries", "decisions"):
            f[name]
        for (name, labels), count in samples.items():
            f[name].add_metric(list(labels), count)

    def _labels(self, kind: int, a: int, b: int, c: int, d: int) -> tuple[str, tuple[str, ...]]:
        if kind == SERIES_REQUESTS:
            model = self.models.get(a, "other")
            return "requests", (model, named(ENDPOINTS, b), named(OUTCOME_NAMES, c), str(d))
        if kind == SERIES_DECISIONS:
            return "decisions", (named(POLICIES, a), named(REASONS, b))
        if kind == SERIES_REJECTED:
            return "rejected", (named(reasons.REJECTED, a),)
        if kind == SERIES_RETRIES:
            return "retries", (named(reasons.RETRIED, a),)
        return "requests", ("other", "other", "other", "other")

    def _models(self, f: _Families) -> None:
        segment = self.control.segment
        for number, name in [(0, "other"), *self.models.items()]:
            cell = segment.model(number)
            if number == 0 and not sum(cell["duration"]["buckets"]):
                continue
            f["prompt_tokens"].add_metric([name], cell["prompt_tokens"])
            f["completion_tokens"].add_metric([name], cell["completion_tokens"])
            f["estimated_prompt_tokens"].add_metric([name], cell["estimated_prompt_tokens"])
            f["queue_depth"].add_metric([name], cell["queued"])
            f.histogram("request_duration_seconds", [name], cell["duration"])
            f.histogram("tpot_seconds", [name], cell["tpot"])
            f.histogram("itl_seconds", [name], cell["itl"])
            f.histogram("queue_wait_seconds", [name], cell["queue_wait"])

    def _pairs(self, f: _Families) -> None:
        members = self.control.registry.members
        for (replica, model), number in self.control.registry.pairs.by_name.items():
            cell = self.control.segment.pair(number)
            if replica in members:
                f["replica_inflight"].add_metric([replica, model], cell["requests"])
                f["replica_inflight_tokens"].add_metric([replica, model], cell["inflight_tokens"])
            if replica in members or sum(cell["ttft"]["buckets"]):
                f.histogram("ttft_seconds", [model, replica], cell["ttft"])

    def _replicas(self, f: _Families) -> None:
        now_ns = time.monotonic_ns()
        for member in self.control.registry.members.values():
            for state in STATES:
                f["replica_state"].add_metric([member.id, state], member.state == state)
            row = self.control.segment.row(member.slot)
            if row is None:
                continue
            labels = [member.id, next(iter(member.cards), "other")]
            known = row["scraped_at_ns"] > 0
            age = (now_ns - row["scraped_at_ns"]) / 1e9 if known else None
            f.gauge("replica_weight", labels, row["weight"])
            f.gauge("replica_metrics_age_seconds", labels, age)
            f.gauge("replica_running", labels, row["running"] if row["running"] >= 0 else None)
            f.gauge("replica_queue_depth", labels, row["waiting"] if row["waiting"] >= 0 else None)
            f.gauge("replica_kv_usage", labels, row["kv_usage"])
            f.gauge("replica_prefix_hit_ratio", labels, row["hit_ratio"])
            self._gpus(f, member)

    def _gpus(self, f: _Families, member: Member) -> None:
        for gpu in member.gpus:
            labels = [member.id, gpu.name]
            f.gauge("replica_gpu_util", labels, gpu.util)
            f.gauge("replica_gpu_temp_celsius", labels, gpu.temp_celsius)
            f.gauge("replica_gpu_dram_active", labels, gpu.dram_active)
            f.gauge("replica_gpu_xid", labels, gpu.xid)
            f.gauge("replica_gpu_ecc_dbe", labels, gpu.ecc_dbe)
            f.gauge("replica_nvlink_bytes_per_second", labels, gpu.nvlink_bytes_per_s)

    def _gateway(self, f: _Families) -> None:
        control = self.control
        f.histogram("overhead_seconds", [], control.segment.overhead())
        f["retry_budget_balance"].add_metric([], control.explainer.retry_budget())
        f["processes"].add_metric([], control.process_count)
        f["config_generation"].add_metric([], control.config_generation)
        f["config_errors"].add_metric([], control.config_errors)
        for source, count in control.tally.bad_samples.items():
            f["bad_samples"].add_metric([source], count)
        for (replica, kind), hist in control.tally.probes.items():
            f.histogram("probe_seconds", [replica, kind], hist.document())
        for part, count in control.tally.errors.items():
            f["control_errors"].add_metric([part], count)
        for model, plan in control.autoscale.plans.items():
            f["desired_replicas"].add_metric([model], plan.desired)
            f.gauge("forecast_load", [model], plan.forecast)
            f.gauge("utilization", [model], plan.utilization)
        f["build_info"].add_metric([__version__, platform.python_version()], 1)
