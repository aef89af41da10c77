"""The metrics page says the same as prometheus_client would, in both formats."""

import asyncio
import math

import pytest
from gateway_loop import play
from hypothesis import given
from hypothesis import strategies as st
from page_oracle import render as render_by_oracle
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from headrace.control.registry import Gpu
from headrace.core.pagetext import Family
from headrace.observe.exposition import Families, label_text
from headrace.observe.page import MAX_SERIES, MetricsPage
from headrace.observe.table import METRICS, PREFIX

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PARSERS = {"": parse_text, OPENMETRICS: parse_openmetrics}
# Another moment, another value.
MOVING = {"headrace_replica_metrics_age_seconds", "headrace_retry_budget_balance"}


def families(page, accept):
    """{family: (type, help, {(sample, labels): value})}; a sample that stands twice fails."""
    found = {}
    for family in PARSERS[accept](page.decode()):
        samples = {}
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples, f"twice: {key}"
            samples[key] = None if sample.name in MOVING else sample.value
        found[family.name] = family.type, family.documentation, samples
    return found


async def make_traffic(gateway):
    for n in range(6):
        await gateway.chat(stream=bool(n % 2), max_tokens=3, stream_options={"include_usage": True})
    await gateway.chat(model="unknown")
    async with gateway.client.post(f"{gateway.url}/v1/chat/completions", data=b"{") as answer:
        await answer.read()


def test_the_page_is_what_prometheus_client_would_write():
    async def scenario(gateway, engines):
        await make_traffic(gateway)
        control = gateway.control
        member = next(iter(control.registry.members.values()))
        member.gpus = [Gpu("0", 0.5, None, 61.5, 79, 0, 1e9), Gpu('GPU-"\\\n')]
        control.tally.record_probe(member.id, "chat", 0.04)
        control.tally.errors["admin"] += 1
        for accept in PARSERS:
            filled = Families()
            for _ in control.metrics_page.steps(filled):  # in one go: nothing changes meanwhile
                pass
            page, content_type = filled.page(accept)
            wanted, wanted_type = render_by_oracle(control, accept)
            assert content_type == wanted_type
            found = families(page, accept)
            _, _, overhead = found.pop("headrace_overhead_seconds")
            assert overhead["headrace_overhead_seconds_count", frozenset()] == 6  # sent on
            assert found == families(wanted, accept)

    play(scenario, models=("m", '<img src=x onerror="1">\\n\n', "späť"), replicas=2)


def test_a_busy_gateway_shows_every_metric_that_does_not_need_a_gpu_or_a_failure():
    async def scenario(gateway, engines):
        await make_traffic(gateway)
        gateway.control.autoscale.look(0.0)
        while engines[0].scrapes < 4:
            await asyncio.sleep(0.02)
        page, _ = await gateway.control.metrics_page.render("")
        seen = {name for name, (_, _, samples) in families(page, "").items() if samples}
        rare = {"retries", "control_errors", "probe_seconds", "forecast_load"}
        rare |= {m.name for m in METRICS if "gpu" in m.labels}
        assert {PREFIX + m.name for m in METRICS if m.name not in rare} - seen == set()

    play(scenario)


def test_a_page_of_many_replicas_lets_the_loop_run_in_between():
    async def scenario(gateway, engines):
        members = gateway.control.registry.members
        (member,) = members.values()
        members.update({f"10.0.0.{n}:8000": member for n in range(300)})
        try:
            assert len(list(MetricsPage(gateway.control).steps(_Nothing()))) > 5
        finally:
            for name in [name for name in members if name.startswith("10.")]:
                del members[name]

    play(scenario)


class _Nothing:
    """Families that forget."""

    def __getitem__(self, name):
        return Family(name)

    def add(self, name, values, value):
        pass


def test_counter_series_are_bounded_and_keep_their_names():
    page = MetricsPage(control=None)
    first = [("requests", ("m", "chat_completions", "ok", str(n))) for n in range(MAX_SERIES)]
    assert [page._bounded(sample) for sample in first] == first
    late = page._bounded(("decisions", ("random", "cost")))
    assert late == ("decisions", ("other", "other"))
    assert page._bounded(first[7]) == first[7]


LABELS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)


@given(
    st.lists(st.integers(0, 1 << 40), min_size=1, max_size=24),
    st.floats(0, 1e12),
    LABELS,
)
def test_a_histogram_reads_as_prometheus_clients_own(counts, total, label):
    bounds = [0.005 * 1.7**n for n in range(len(counts) - 1)]
    family = Family("h")
    family.add_histogram(label_text(("replica",), (label,)), bounds, counts, total)
    wanted = HistogramMetricFamily("h", "", labels=["replica"])
    cumulative = [sum(counts[: n + 1]) for n in range(len(counts))]
    les = [repr(bound) for bound in bounds] + ["+Inf"]
    wanted.add_metric([label], list(zip(les, cumulative, strict=True)), total)

    class Collected:
        def collect(self):
            return [wanted]

    own = "# TYPE h histogram\n" + family.text().decode()
    oracle = generate_latest(Collected()).decode()
    read = [[f.samples for f in parse_text(text)] for text in (own, oracle)]
    assert sorted(read[0][0], key=str) == sorted(read[1][0], key=str)


@given(st.floats(allow_nan=False) | st.integers(0, (1 << 64) - 1))
def test_every_number_is_read_back_as_it_was(value):
    family = Family("g")
    family.add(b"", value)
    ((sample,),) = [f.samples for f in parse_text(family.text().decode())]
    assert sample.value == float(value)


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_what_is_not_known_is_no_sample(unknown):
    family = Family("g")
    family.add(b'replica="a"', unknown)
    assert family.text() == b""


def test_a_histogram_with_a_wrong_number_of_buckets_is_refused():
    with pytest.raises(ValueError, match="one more than 2 bounds"):
        Family("h").add_histogram(b"", [1.0, 2.0], [1, 2], 0.0)
