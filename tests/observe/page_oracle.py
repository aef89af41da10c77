"""The metrics page as prometheus_client writes it, from the dicts that the segment gives.

The gateway's own time is left out: no dict has it.
"""

from __future__ import annotations

import math
import platform
import time

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder

from headrace import __version__
from headrace.core.segment import unpack_series
from headrace.observe.page import sample_of
from headrace.observe.table import BY_NAME, PREFIX, STATES

FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def render(control, accept):
    """Page and content type."""
    encoder, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Page(control))
    return encoder(registry), content_type


class Page:
    """A custom collector over a control plane."""

    def __init__(self, control):
        self.control = control
        self.made = {}

    def collect(self):
        self.counters()
        self.models()
        self.pairs()
        self.replicas()
        self.gateway()
        return [self.made[name] for name in BY_NAME if name in self.made]

    def family(self, name):
        if name not in self.made:
            metric = BY_NAME[name]
            make = FAMILIES[metric.kind]
            self.made[name] = make(PREFIX + name, metric.help, labels=metric.labels)
        return self.made[name]

    def add(self, name, labels, value):
        family = self.family(name)
        if value is not None and not math.isnan(value):
            family.add_metric(labels, value)

    def histogram(self, name, labels, hist):
        total, buckets = 0, []
        for bound, count in zip([*hist["bounds"], math.inf], hist["buckets"], strict=True):
            total += count
            buckets.append(("+Inf" if bound == math.inf else repr(float(bound)), total))
        self.family(name).add_metric(labels, buckets, hist["sum"])

    def counters(self):
        models = {n: name for name, n in self.control.registry.model_ids.by_name.items()}
        counts = {}
        for key, count in self.control.segment.counters().items():
            sample = sample_of(models, *unpack_series(key))
            counts[sample] = counts.get(sample, 0) + count
        for name in ("requests", "rejected", "retries", "decisions"):
            self.family(name)
        for (name, labels), count in counts.items():
            self.add(name, labels, count)

    def models(self):
        for name, number in [("other", 0), *self.control.registry.model_ids.by_name.items()]:
            cell = self.control.segment.model(number)
            for counter in ("prompt_tokens", "completion_tokens", "estimated_prompt_tokens"):
                self.add(counter, [name], cell[counter])
            self.add("queue_depth", [name], cell["queued"])
            self.histogram("request_duration_seconds", [name], cell["duration"])
            for hist in ("tpot", "itl", "queue_wait"):
                self.histogram(f"{hist}_seconds", [name], cell[hist])

    def pairs(self):
        for (replica, model), number in self.control.registry.pairs.by_name.items():
            cell = self.control.segment.pair(number)
            if replica in self.control.registry.members:
                self.add("replica_inflight", [replica, model], cell["requests"])
                self.add("replica_inflight_tokens", [replica, model], cell["inflight_tokens"])
            if replica in self.control.registry.members or sum(cell["ttft"]["buckets"]):
                self.histogram("ttft_seconds", [model, replica], cell["ttft"])

    def replicas(self):
        for member in self.control.registry.members.values():
            for state in STATES:
                self.add("replica_state", [member.id, state], member.state == state)
            row = self.control.segment.row(member.slot)
            labels = [member.id, next(iter(member.cards), "other")]
            scraped_ns = row["scraped_at_ns"]
            age_s = (time.monotonic_ns() - scraped_ns) / 1e9 if scraped_ns else None
            self.add("replica_weight", labels, row["weight"])
            self.add("replica_metrics_age_seconds", labels, age_s)
            for name, key in (("replica_running", "running"), ("replica_queue_depth", "waiting")):
                self.add(name, labels, row[key] if row[key] >= 0 else None)
            self.add("replica_kv_usage", labels, row["kv_usage"])
            self.add("replica_prefix_hit_ratio", labels, row["hit_ratio"])
            for gpu in member.gpus:
                self.gpu([member.id, gpu.name], gpu)

    def gpu(self, labels, gpu):
        self.add("replica_gpu_util", labels, gpu.util)
        self.add("replica_gpu_temp_celsius", labels, gpu.temp_celsius)
        self.add("replica_gpu_dram_active", labels, gpu.dram_active)
        self.add("replica_gpu_xid", labels, gpu.xid)
        self.add("replica_gpu_ecc_dbe", labels, gpu.ecc_dbe)
        self.add("replica_nvlink_bytes_per_second", labels, gpu.nvlink_bytes_per_s)

    def gateway(self):
        control = self.control
        self.add("retry_budget_balance", [], control.explainer.retry_budget())
        self.add("processes", [], control.process_count)
        self.add("config_generation", [], control.config_generation)
        self.add("config_errors", [], control.config_errors)
        for source, count in control.sources.wanted.counts().items():
            self.add("discovered_replicas", [source], count)
        for source, count in control.tally.bad_samples.items():
            self.add("bad_samples", [source], count)
        for (replica, kind), hist in control.tally.probes.items():
            self.histogram("probe_seconds", [replica, kind], hist.document())
        for stage, count in control.upward.dropped().items():
            self.add("records_dropped", [stage], count)
        for part, count in control.tally.errors.items():
            self.add("control_errors", [part], count)
        for model, plan in control.autoscale.plans.items():
            self.add("desired_replicas", [model], plan.desired)
            self.add("forecast_load", [model], plan.expected)
            self.add("utilization", [model], plan.utilization)
        self.add("build_info", [__version__, platform.python_version()], 1)
