"""The two metrics pages beside real ones, and through the gateway's own readers."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.mock import dcgm_page
from headrace.mock.hardware import Hardware
from headrace.mock.histogram import Histogram
from headrace.mock.metrics_page import MetricsPage, new_histograms
from headrace.mock.presets import PRESETS

FIXTURES = Path(__file__).parents[1] / "fixtures"
LABEL = re.compile(r'(\w+)="[^"]*"')


def described(page):
    """HELP and TYPE lines in their order."""
    return [line for line in page.splitlines() if line.startswith("#")]


def series(page):
    """Each sample's name with its label names and the values that are not free to vary."""
    kept = re.compile(r'(le|reason|source|finished_reason|sleep_state)="([^"]*)"')
    found = []
    for line in page.splitlines():
        if not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            found.append((name, tuple(LABEL.findall(labels)), tuple(kept.findall(labels))))
    return found


def vllm_part(page):
    lines = page.splitlines()
    return "\n".join(line for line in lines if re.match(r"(# \w+ )?vllm:", line))


def test_the_page_has_the_families_labels_and_buckets_of_vllm_in_its_order():
    real = vllm_part((FIXTURES / "vllm-0.32.0-metrics-idle.txt").read_text())
    fake = vllm_part(MetricsPage("tiny", 1.7e9, {}).render({}, new_histograms()).decode())
    assert described(fake) == described(real)
    assert series(fake) == series(real)


def test_values_and_histograms_stand_where_they_belong():
    histograms = new_histograms()
    histograms["time_to_first_token_seconds"].observe(0.03, 2)
    histograms["time_to_first_token_seconds"].observe(9999.0)
    values = {
        "num_requests_running": 3,
        "request_success_total/length": 7,
        "process_start_time_seconds": 1795952843.09,
    }
    lines = MetricsPage('a"b', 1.0, {"num_gpu_blocks": "9"}).render(values, histograms).decode()
    page = dict(line.rsplit(" ", 1) for line in lines.splitlines() if line[0] != "#")
    labels = 'engine="0",model_name="a\\"b"'
    assert page[f"vllm:num_requests_running{{{labels}}}"] == "3.0"
    reason = 'engine="0",finished_reason="length",model_name="a\\"b"'
    assert page[f"vllm:request_success_total{{{reason}}}"] == "7.0"
    assert page["process_start_time_seconds"] == "1.79595284309e+09"
    name = "vllm:time_to_first_token_seconds"
    assert page[f"{name}_count{{{labels}}}"] == "3.0"
    assert page[f"{name}_sum{{{labels}}}"] == "9999.06"
    bucket = '_bucket{engine="0",le="%s",model_name="a\\"b"}'
    shown = [page[name + bucket % le] for le in ("0.02", "0.04", "2560.0", "+Inf")]
    assert shown == ["0.0", "2.0", "2.0", "3.0"]
    assert 'num_gpu_blocks="9"' in lines


def test_a_histogram_counts_a_value_on_a_bound_below_it():
    histogram = Histogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.cumulative() == [2, 4, 5]
    assert histogram.total == 7.5


def test_the_dcgm_page_has_the_names_labels_and_help_of_the_exporter():
    known = set()
    for path in FIXTURES.glob("dcgm-4.*.txt"):
        known.update(described(path.read_text()))
    fleet = [Hardware(PRESETS["llama3-70b-8xh100-tp8"]), Hardware(PRESETS["llama3-8b-h100"])]
    fleet[0].gpus[3].raise_xid(74)
    page = dcgm_page.render(fleet).decode()
    assert set(described(page)) <= known
    real = (FIXTURES / "dcgm-4.4-healthy-8xh100.txt").read_text().splitlines()
    labels = {tuple(LABEL.findall(line)) for line in real if "{" in line}
    assert {tuple(LABEL.findall(line)) for line in page.splitlines() if "{" in line} == labels


def test_collapsed_links_pull_their_group_down_and_nobody_else():
    group, other = (Hardware(PRESETS["llama3-70b-8xh100-tp8"]) for _ in range(2))
    for hardware in (group, other):
        hardware.busy_ratio = 1.0
    group.gpus[2].raise_xid(74)
    shares = [reading.nvlink for reading in dcgm_page.readings([group, other])]
    assert shares == [0.1, 0.1, 0.01, 0.1, 0.1, 0.1, 0.1, 0.1] + [1.0] * 8


def test_utilization_is_the_engines_busy_share_of_the_last_second():
    hardware = Hardware(PRESETS["llama3-8b-h100"])
    hardware.measure(500_000_000, 1_000_000_000)
    assert hardware.busy_ratio == 0.5
    hardware.measure(600_000_000, 1_500_000_000)  # too soon for another look
    assert hardware.busy_ratio == 0.5
    hardware.measure(1_500_000_000, 2_000_000_000)
    assert hardware.busy_ratio == 1.0
    hardware.measure(0, 2_500_000_000)  # restarted
    hardware.measure(0, 4_000_000_000)
    assert hardware.busy_ratio == 0.0
