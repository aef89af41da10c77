"""What stands on the metrics page: counters and cells of the segment, and what control knows."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.core import pagetext
from headrace.core.lease import POLICIES, REASONS
from headrace.core.segment import OUTCOME_NAMES, unpack_series
from headrace.endpoints import ENDPOINTS
from headrace.observe import reasons
from headrace.observe.exposition import Families, label_text
from headrace.observe.records import named
from headrace.observe.table import BY_NAME, STATES

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

MAX_SERIES = 4096  # of counters with packed keys; further ones are `other`
STEP_ROWS = 64  # replicas or pairs between two looks at the loop: about a millisecond
SERIES_REQUESTS, SERIES_DECISIONS, SERIES_REJECTED, SERIES_RETRIES, SERIES_OTHER = 1, 2, 3, 4, 255

Sample = tuple[str, tuple[str, ...]]  # family and label values


class MetricsPage:
    """Renders the page again and again; keeps which counter series have labels of their own."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._shown: set[Sample] = set()

    async def render(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type. Many replicas take many steps, and the loop runs between:
        with `--processes 0` it relays streams too.
        """
        families = Families()
        for _ in self.steps(families):
            await asyncio.sleep(0)
        return families.page(accept)

    def steps(self, families: Families) -> Iterator[None]:
        """Fill the families, stopping now and then."""
        control = self._control
        self._add_counters(families)
        yield
        models = _models(control)
        # From the start, so that the first unknown name adds no histograms; a served model of that
        # name keeps it.
        if "other" not in models.values():
            _add_model(control, families, 0, "other")
        for number, name in models.items():
            _add_model(control, families, number, name)
        yield
        for at, ((replica, model), number) in enumerate(_pairs(control)):
            _add_pair(control, families, number, replica, model)
            if at % STEP_ROWS == STEP_ROWS - 1:
                yield
        for at, member in enumerate(list(control.registry.members.values())):
            _add_replica(control, families, member)
            if at % STEP_ROWS == STEP_ROWS - 1:
                yield
        _add_gateway(control, families)

    def _add_counters(self, families: Families) -> None:
        models = _models(self._control)
        counts: dict[Sample, int] = {}
        for key, count in self._control.segment.counters().items():
            sample = self._bounded(sample_of(models, *unpack_series(key)))
            counts[sample] = counts.get(sample, 0) + count
        for name in ("requests", "rejected", "retries", "decisions"):
            families[name]  # has a head even while nothing was counted
        for (name, values), count in counts.items():
            families.add(name, values, count)

    def _bounded(self, sample: Sample) -> Sample:
        """The sample itself while there is room, for ever; then the `other` of its family."""
        if sample not in self._shown:
            if len(self._shown) >= MAX_SERIES:
                return sample[0], ("other",) * len(sample[1])
            self._shown.add(sample)
        return sample


def sample_of(models: dict[int, str], kind: int, a: int, b: int, c: int, d: int) -> Sample:
    """Family and label values of a packed key."""
    if kind == SERIES_REQUESTS:
        model = models.get(a, "other")
        return "requests", (model, named(ENDPOINTS, b), named(OUTCOME_NAMES, c), str(d))
    if kind == SERIES_DECISIONS:
        return "decisions", (named(POLICIES, a), named(REASONS, b))
    if kind == SERIES_REJECTED:
        return "rejected", (named(reasons.REJECTED, a),)
    if kind == SERIES_RETRIES:
        return "retries", (named(reasons.RETRIED, a),)
    return "requests", ("other", "other", "other", "other")


def _models(control: Control) -> dict[int, str]:
    return {number: name for name, number in control.registry.model_ids.by_name.items()}


def _pairs(control: Control) -> list[tuple[tuple[str, str], int]]:
    return [(("other", "other"), 0), *control.registry.pairs.by_name.items()]


def _add_model(control: Control, f: Families, number: int, name: str) -> None:
    pagetext.add_model(
        control.segment,
        number,
        label_text(("model",), (name,)),
        prompt_tokens=f["prompt_tokens"],
        completion_tokens=f["completion_tokens"],
        estimated_prompt_tokens=f["estimated_prompt_tokens"],
        queue_depth=f["queue_depth"],
        request_duration=f["request_duration_seconds"],
        tpot=f["tpot_seconds"],
        itl=f["itl_seconds"],
        queue_wait=f["queue_wait_seconds"],
    )


def _add_pair(control: Control, f: Families, number: int, replica: str, model: str) -> None:
    labels = label_text(("replica", "model"), (replica, model))
    if replica in control.registry.members:
        inflight, tokens = f["replica_inflight"], f["replica_inflight_tokens"]
        pagetext.add_pair(control.segment, number, labels, f["ttft_seconds"], inflight, tokens)
    else:
        pagetext.add_pair(control.segment, number, labels, f["ttft_seconds"])


def _add_replica(control: Control, f: Families, member: Member) -> None:
    for state in STATES:
        f.add("replica_state", (member.id, state), member.state == state)
    row = control.segment.row(member.slot)
    if row is None:
        return
    model = next(iter(member.cards), "other")
    labels = label_text(BY_NAME["replica_weight"].labels, (member.id, model))
    scraped_ns = row["scraped_at_ns"]
    age_s = (time.monotonic_ns() - scraped_ns) / 1e9 if scraped_ns else None
    f["replica_weight"].add(labels, row["weight"])
    f["replica_metrics_age_seconds"].add(labels, age_s)
    f["replica_running"].add(labels, row["running"] if row["running"] >= 0 else None)
    f["replica_queue_depth"].add(labels, row["waiting"] if row["waiting"] >= 0 else None)
    f["replica_kv_usage"].add(labels, row["kv_usage"])
    f["replica_prefix_hit_ratio"].add(labels, row["hit_ratio"])
    _add_gpus(f, member)


def _add_gpus(f: Families, member: Member) -> None:
    for gpu in member.gpus:
        labels = label_text(BY_NAME["replica_gpu_util"].labels, (member.id, gpu.name))
        f["replica_gpu_util"].add(labels, gpu.util)
        f["replica_gpu_temp_celsius"].add(labels, gpu.temp_celsius)
        f["replica_gpu_dram_active"].add(labels, gpu.dram_active)
        f["replica_gpu_xid"].add(labels, gpu.xid)
        f["replica_gpu_ecc_dbe"].add(labels, gpu.ecc_dbe)
        f["replica_nvlink_bytes_per_second"].add(labels, gpu.nvlink_bytes_per_s)


def _add_gateway(control: Control, f: Families) -> None:
    pagetext.add_overhead(control.segment, f["overhead_seconds"])
    f.add("retry_budget_balance", (), control.explainer.retry_budget())
    for source, count in control.sources.wanted.counts().items():
        f.add("discovered_replicas", (source,), count)
    f.add("processes", (), control.process_count)
    f.add("config_generation", (), control.config_generation)
    f.add("config_errors", (), control.config_errors)
    for source, count in control.tally.bad_samples.items():
        f.add("bad_samples", (source,), count)
    for (replica, kind), probes in control.tally.probes.items():
        labels = label_text(("replica", "kind"), (replica, kind))
        f["probe_seconds"].add_histogram(labels, probes.bounds, probes.buckets, probes.sum)
    for stage, count in control.upward.dropped().items():
        f.add("records_dropped", (stage,), count)
    for part, count in control.tally.errors.items():
        f.add("control_errors", (part,), count)
    for model, plan in control.autoscale.plans.items():
        f.add("desired_replicas", (model,), plan.desired)
        f.add("forecast_load", (model,), plan.expected)
        f.add("utilization", (model,), plan.utilization)
    f.add("build_info", (__version__, platform.python_version()), 1)
