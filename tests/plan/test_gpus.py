"""Cards and links: the sheets' figures, and how they are found."""

import pytest

from headrace.plan.gpus import GPUS, find_gpu
from headrace.plan.links import LINKS, pick_links
from headrace.plan.names import PlanError

CONTRACT_NAMES = (
    "A10 L4 L40S RTX4090 A100-40G A100-80G H100-PCIE H100-SXM H200 B200 MI300X Ascend-910B"
)


@pytest.mark.parametrize("name", CONTRACT_NAMES.split())
def test_every_promised_card_is_known_whatever_its_case(name: str) -> None:
    assert find_gpu(name.lower().replace("-", "_")).name == name


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda g: g.name)
def test_every_row_has_figures_a_source_and_a_known_link(gpu) -> None:  # type: ignore[no-untyped-def]
    assert gpu.memory_gib > 0 and gpu.bandwidth_gbps > 0 and gpu.bf16_tflops > 0
    assert gpu.source and gpu.link in LINKS and "/" in gpu.resource


@pytest.mark.parametrize(
    ("name", "memory_mib"),
    # as nvidia-smi shows it
    [("A10", 23028), ("L4", 23034), ("L40S", 46068), ("A100-80G", 81920), ("H100", 81559)],
)
def test_memory_is_what_the_driver_shows(name: str, memory_mib: int) -> None:
    assert find_gpu(name).memory_bytes / 2**20 == pytest.approx(memory_mib, rel=0.005)


def test_a_dense_rate_is_used_and_a_missing_type_falls_back_to_sixteen_bit() -> None:
    assert find_gpu("H100").flops_per_s("bf16") == 989e12
    assert find_gpu("H100").flops_per_s("fp8") == 1979e12
    assert find_gpu("A100").flops_per_s("fp8") == 312e12
    assert find_gpu("H100").flops_per_s("int4") == 989e12


def test_an_unknown_card_names_the_nearest() -> None:
    with pytest.raises(PlanError, match=r"did you mean .*H100-SXM"):
        find_gpu("H1000-SXM")


def test_a_named_interconnect_replaces_the_one_of_its_place() -> None:
    inside, between = pick_links("nvlink4", [])
    assert (inside.name, between.name) == ("nvlink4", "ib400")
    inside, between = pick_links("nvlink4", ["pcie5", "RoCE-200"])
    assert (inside.name, between.name) == ("pcie5", "roce200")


def test_two_links_for_one_place_are_refused() -> None:
    with pytest.raises(PlanError, match="same place"):
        pick_links("nvlink4", ["ib200", "ib400"])
