from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.dcgm import GpuSample, read_page
from headrace.control.gpu_judge import GpuJudge
from headrace.control.hardware import RULES, Action, Kind

FIXTURES = Path(__file__).parent.parent / "fixtures"
HEALTHY = [
    "3.1-4xa100",
    "4.4-healthy-8xh100",
    "4.5-healthy-8xh100-no-xid-lines",
    "4.4-kubernetes-vllm-pods",
    "4.5-mig-two-instances",
    "4.x-lowercase-hostname",
]


def page(name):
    return read_page((FIXTURES / f"dcgm-{name}.txt").read_bytes())[0]


def judged(*pages, every_s=15):
    """What each page brings, as {(action, rule, gpu)}."""
    judge = GpuJudge()
    return [
        {(found.action, found.rule.name, found.gpu) for found in judge.update(gpus, n * 10**9)}
        for n, gpus in zip(range(0, 10**6, every_s), pages, strict=False)
    ]


def gpu(**figures):
    return [GpuSample("0", "GPU-0", **{"util": 0.4, "temp_celsius": 50.0, **figures})]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_page_asks_for_nothing_however_often_it_comes(name):
    assert judged(*[page(name)] * 6) == [set()] * 6


@pytest.mark.parametrize(
    "healthy, faulty",
    [
        ("4.4-healthy-8xh100", "4.4-gpu3-xid79-dbe"),
        ("4.5-healthy-8xh100-no-xid-lines", "4.5-gpu3-lost-lines-missing"),
    ],
)
def test_a_lost_gpu_drains_once(healthy, faulty):
    _, first, second = judged(page(healthy), page(faulty), page(faulty))
    assert (Action.DRAIN, "xid_fatal", "3") in first
    assert {where for _, _, where in first} == {"3"}
    assert second == set()


def test_a_lost_gpu_counts_on_the_first_page_and_a_sticky_xid_does_not():
    assert (Action.DRAIN, "xid_fatal", "3") in judged(page("4.5-gpu3-lost-lines-missing"))[0]
    assert judged(*[gpu(xid=79, dbe_total=5)] * 3) == [set()] * 3


@pytest.mark.parametrize(
    "code, action",
    [(79, Action.DRAIN), (48, Action.DRAIN), (74, Action.PROBE), (31, Action.NOTE), (173, None)],
)
def test_a_new_xid_acts_by_its_kind(code, action):
    found = judged(gpu(xid=0), gpu(xid=code), gpu(xid=code))
    assert [{a for a, _, _ in one} for one in found] == [set(), {action} - {None}, set()]


def test_a_xid_line_that_is_new_is_an_edge():
    assert judged(gpu(xid=None), gpu(xid=79))[1] == {(Action.DRAIN, "xid_fatal", "0")}


def test_an_unreadable_xid_in_between_is_no_edge():
    assert judged(gpu(xid=79), gpu(xid=None), gpu(xid=79)) == [set()] * 3


def test_double_bit_errors_count_by_their_rise_and_a_reset_is_no_fault():
    found = judged(*(gpu(dbe_total=n) for n in (5, 5, 0, 0, 1, 1, 3)))
    drain = {(Action.DRAIN, "ecc_double_bit", "0")}
    assert found == [set(), set(), set(), set(), drain, set(), drain]


def test_single_bit_errors_count_as_a_storm_only():
    quiet = judged(*(gpu(sbe_total=n) for n in range(0, 500, 4)))
    assert not any(quiet)
    storm = judged(gpu(sbe_total=0), gpu(sbe_total=60), gpu(sbe_total=130), gpu(sbe_total=131))
    degrade = {(Action.DEGRADE, "ecc_single_bit_storm", "0")}
    assert storm == [set(), set(), degrade, degrade]
    assert judged(gpu(sbe_total=0), gpu(sbe_total=200), gpu(sbe_total=201), every_s=301)[2] == set()


def test_heat_and_throttling_degrade_while_they_last():
    hot, cool = page("4.5-gpu5-hot-throttled"), page("4.4-healthy-8xh100")
    found = judged(hot, hot, hot, cool, hot)
    assert found[0] == set()
    assert found[1] == {(Action.DEGRADE, "throttled", "5")}
    assert found[2] == {(Action.DEGRADE, "throttled", "5"), (Action.DEGRADE, "hot", "5")}
    # The cool page has no line for the throttle reasons: only the heat is known to be over.
    assert found[3] == found[4] == {(Action.DEGRADE, "throttled", "5")}


@pytest.mark.parametrize("bits", [0x00, 0x01, 0x04, 0x05, 0x02])
def test_idle_and_power_cap_are_normal(bits):
    assert not any(judged(*[gpu(clock_reasons=bits)] * 5))


def test_the_lowest_nvlink_of_a_busy_group_is_at_fault_and_its_peers_are_not():
    group = [one for one in page("4.4-gpu2-nvlink-collapse") if int(one.index) < 4]
    found = judged(group, group, group)
    assert (Action.DEGRADE, "nvlink_collapse", "2") in found[1] & found[2]
    assert not {where for one in found for _, _, where in one} - {"2"}


def test_silent_links_of_idle_gpus_are_no_fault():
    group = [
        GpuSample(str(n), f"GPU-{n}", util=0.0, nvlink_mb_per_s=float(n * 400)) for n in range(4)
    ]
    assert not any(judged(*[group] * 4))


def test_a_vanished_gpu_asks_for_a_probe_once():
    both = page("4.x-lowercase-hostname")
    found = judged(both, both[:1], both[:1], both, [])
    assert found == [set(), {(Action.PROBE, "vanished", "1")}, set(), set(), set()]


def test_an_exporter_that_is_gone_changes_nothing():
    hot = gpu(temp_celsius=95.0)
    found = judged(hot, hot, hot, [], hot)
    degrade = {(Action.DEGRADE, "hot", "0")}
    assert found == [set(), set(), degrade, degrade, degrade]


def test_a_failed_health_check_drains_once_and_again_only_after_it_was_good():
    found = judged(*(gpu(health=h) for h in (20, 20, 10, 20)))
    drains = [(Action.DRAIN, "health_failed", "0") in one for one in found]
    assert drains == [True, False, False, True]


def test_the_table_names_a_source_and_a_signal_for_every_rule():
    signals = set(GpuSample.__dataclass_fields__)
    assert all("NVIDIA" in rule.source for rule in RULES)
    assert all(rule.signal in signals or rule.kind is Kind.VANISHED for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


FIGURES = {
    "xid": st.sampled_from([None, 0, 31, 79]),
    "dbe_total": st.sampled_from([None, 0, 1]),
    "temp_celsius": st.sampled_from([None, 50.0, 95.0]),
    "health": st.sampled_from([None, 0, 10, 20]),
}


@given(st.lists(st.fixed_dictionaries(FIGURES), max_size=12))
def test_a_page_that_repeats_brings_no_second_drain(rows):
    judge = GpuJudge()
    now_ns = 0
    for row in rows:
        one = replace(gpu()[0], **row)
        judge.update([one], now_ns)
        again = judge.update([one], now_ns + 10**9)
        assert not [found for found in again if found.action is Action.DRAIN]
        now_ns += 10 * 10**9


@given(st.lists(st.fixed_dictionaries(FIGURES), max_size=12))
def test_pages_without_figures_in_between_change_no_finding(rows):
    def run(gaps):
        judge, seen = GpuJudge(), []
        for n, row in enumerate(rows):
            seen.append(judge.update([replace(gpu()[0], **row)], n * 10**10))
            if gaps:
                standing = [found for found in seen[-1] if found.action is Action.DEGRADE]
                assert judge.update([], n * 10**10 + 1) == standing
        return seen

    assert run(False) == run(True)
