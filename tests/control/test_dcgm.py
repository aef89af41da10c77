from pathlib import Path

import pytest

from headrace.control.dcgm import GpuSample, read_page, select

FIXTURES = Path(__file__).parent.parent / "fixtures"


def fixture(name):
    return read_page((FIXTURES / f"dcgm-{name}.txt").read_bytes())


def line(name, value, gpu=0, extra=""):
    return f'DCGM_FI_{name}{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="a"{extra}}} {value}\n'.encode()


@pytest.mark.parametrize(
    "name, count",
    [
        ("3.1-4xa100", 4),
        ("4.4-healthy-8xh100", 8),
        ("4.5-healthy-8xh100-no-xid-lines", 8),
        ("4.4-kubernetes-vllm-pods", 8),
        ("4.x-lowercase-hostname", 2),
        ("4.5-mig-two-instances", 1),
    ],
)
def test_healthy_pages_are_read_whole(name, count):
    gpus, bad = fixture(name)
    assert (len(gpus), bad) == (count, 0)
    assert all(gpu.is_alive and gpu.host.startswith("gpu-node") for gpu in gpus)
    assert all(0 < gpu.temp_celsius < 90 for gpu in gpus)
    assert len({gpu.key for gpu in gpus}) == count


def test_figures_have_their_units():
    gpus, _ = fixture("4.4-healthy-8xh100")
    first = gpus[0]
    assert (first.index, first.xid, first.nvlink_mb_per_s) == ("0", 0, 21874)
    assert 0 < first.util <= 1 and 0 < first.dram_active <= 1
    assert first.sm_clock_mhz == 1980


def test_a_page_without_xid_lines_is_not_a_page_with_xid_zero():
    gpus, _ = fixture("4.5-healthy-8xh100-no-xid-lines")
    assert {gpu.xid for gpu in gpus} == {None}


def test_slices_of_a_mig_gpu_are_one_gpu():
    gpus, _ = fixture("4.5-mig-two-instances")
    assert gpus[0].util is None
    assert 0 < gpus[0].activity < 1
    page = b"".join(
        line("DEV_GPU_UTIL", value, extra=f',GPU_I_ID="{n}"')
        + line("DEV_FB_USED", 10, extra=f',GPU_I_ID="{n}"')
        for n, value in enumerate((20, 60, 10))
    )
    (gpu,), bad = read_page(page)
    assert gpu.util == pytest.approx(0.3)
    assert (gpu.used_mib, bad) == (30, 0)


def test_sentinels_and_impossible_values_are_dropped_and_counted():
    gpus, bad = fixture("sentinels-impossible-values")
    assert bad >= 20
    for gpu in gpus:
        assert gpu.util is None or gpu.util <= 1
        assert gpu.temp_celsius is None or gpu.temp_celsius <= 150
        assert gpu.power_w is None or 0 <= gpu.power_w <= 5000
        assert gpu.dbe_total is None or gpu.dbe_total < 1e6
    assert [gpu.xid for gpu in gpus[:3]] == [None, 173, 31]


@pytest.mark.parametrize(
    "blank",
    ["2147483632", "9223372036854775792", "4294967295", "140737488355328.000000", "-1", "+Inf"],
)
@pytest.mark.parametrize(
    "name", ["DEV_GPU_UTIL", "DEV_GPU_TEMP", "DEV_ECC_DBE_VOL_TOTAL", "DEV_XID_ERRORS"]
)
def test_every_blank_of_every_type_is_no_value(name, blank):
    (gpu,), bad = read_page(line("PROF_DRAM_ACTIVE", 0.5) + line(name, blank))
    assert bad == 1
    assert (gpu.util, gpu.temp_celsius, gpu.dbe_total, gpu.xid) == (None, None, None, None)
    assert gpu.dram_active == 0.5


def test_nan_is_no_value_and_not_counted():
    (gpu,), bad = read_page(line("DEV_GPU_UTIL", "NaN"))
    assert (gpu.util, bad) == (None, 0)


def test_an_empty_frame_buffer_is_no_reading():
    (gpu,), bad = read_page(line("DEV_FB_USED", 0) + line("DEV_FB_FREE", 0))
    assert (gpu.used_mib, gpu.free_mib, bad) == (None, None, 2)


def test_a_lost_gpu_shows_no_sign_of_life():
    gpus, _ = fixture("4.5-gpu3-lost-lines-missing")
    lost = {gpu.index: gpu for gpu in gpus}["3"]
    assert (lost.xid, lost.health, lost.is_alive) == (79, 20, False)
    assert sum(gpu.is_alive for gpu in gpus) == 7


def test_both_names_of_the_throttle_field_are_read():
    old, _ = read_page(line("DEV_CLOCK_THROTTLE_REASONS", 4))
    new, _ = read_page(line("DEV_CLOCKS_EVENT_REASONS", 104))
    assert (old[0].clock_reasons, new[0].clock_reasons) == (4, 104)


def test_gpus_are_joined_by_pod_index_or_uuid():
    gpus, _ = fixture("4.4-kubernetes-vllm-pods")
    index = lambda some: [gpu.index for gpu in some]  # noqa: E731
    assert index(select(gpus, pod=("inference", "vllm-0"))) == ["0", "1", "2", "3"]
    assert index(select(gpus, pod=("", "vllm-1"))) == ["4", "5"]
    assert select(gpus, pod=("other", "vllm-1")) == []
    assert index(select(gpus, wanted=[6, "7"])) == ["6", "7"]
    assert index(select(gpus, wanted=[gpus[2].uuid])) == ["2"]
    assert select(gpus, wanted=[]) == []
    assert len(select(gpus)) == 8


def test_labels_renamed_by_prometheus_name_the_owner():
    extra = ',pod="exporter-1",namespace="gpu",exported_pod="vllm-0",exported_namespace="inference"'
    gpus, _ = read_page(
        line("DEV_GPU_UTIL", 1, extra=extra) + line("DEV_GPU_UTIL", 1, 1, ',pod=""')
    )
    assert [gpu.pods for gpu in gpus] == [{("inference", "vllm-0")}, set()]


def test_without_uuid_host_and_index_identify():
    assert GpuSample("3", "", "a").key != GpuSample("3", "", "b").key
