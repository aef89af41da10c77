"""How cards talk: inside a machine, and between machines."""

from __future__ import annotations

import msgspec

from headrace.plan.names import PlanError, lookup


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A way between two cards: GB/s one way per card, and the time of one small all-reduce.

    `latency_s` is a typical figure of a small (under 64 KB) all-reduce in a CUDA graph; it decides
    the cost of tensor parallelism while decoding.
    """

    name: str
    gbps: float
    latency_s: float
    inside_machine: bool
    source: str


# Latencies: custom all-reduce kernels over NVLink take 5 to 15 µs, NCCL over PCIe 20 to 40 µs, over
# a network 30 to 100 µs (nccl-tests, small messages).
LINKS = {
    link.name: link
    for link in (
        Link(name="nvlink3", gbps=300, latency_s=10e-6, inside_machine=True, source="A100 sheet"),
        Link(name="nvlink4", gbps=450, latency_s=8e-6, inside_machine=True, source="H100 sheet"),
        Link(name="nvlink5", gbps=900, latency_s=7e-6, inside_machine=True, source="B200 sheet"),
        Link(
            name="infinity-fabric",
            gbps=448,
            latency_s=12e-6,
            inside_machine=True,
            source="MI300X sheet: 7 links of 64 GB/s one way",
        ),
        Link(
            name="hccs",
            gbps=196,
            latency_s=15e-6,
            inside_machine=True,
            source="Atlas 800T A2: 392 GB/s both ways",
        ),
        Link(name="pcie3", gbps=16, latency_s=35e-6, inside_machine=True, source="PCI-SIG, x16"),
        Link(name="pcie4", gbps=32, latency_s=30e-6, inside_machine=True, source="PCI-SIG, x16"),
        Link(name="pcie5", gbps=64, latency_s=25e-6, inside_machine=True, source="PCI-SIG, x16"),
        Link(name="ib200", gbps=25, latency_s=40e-6, inside_machine=False, source="HDR, 200 Gbit"),
        Link(name="ib400", gbps=50, latency_s=35e-6, inside_machine=False, source="NDR, 400 Gbit"),
        Link(
            name="roce200", gbps=25, latency_s=60e-6, inside_machine=False, source="RoCE, 200 Gbit"
        ),
        Link(
            name="roce400", gbps=50, latency_s=55e-6, inside_machine=False, source="RoCE, 400 Gbit"
        ),
        Link(
            name="eth100",
            gbps=12.5,
            latency_s=100e-6,
            inside_machine=False,
            source="TCP, 100 Gbit",
        ),
    )
}

# NCCL reports 75 to 90 % of the sheet as bus bandwidth.
LINK_EFFICIENCY = 0.8

DEFAULT_NETWORK = "ib400"


def pick_links(gpu_link: str, named: list[str]) -> tuple[Link, Link]:
    """The way inside the machine and the way between machines; `named` overrides either.

    Raises PlanError for an unknown name, or two names for the same place.
    """
    inside, between = LINKS[gpu_link], LINKS[DEFAULT_NETWORK]
    seen: set[bool] = set()
    for name in named:
        link = lookup(name, LINKS, "interconnect")
        if link.inside_machine in seen:
            raise PlanError(f"interconnect {name!r}: two names for the same place")
        seen.add(link.inside_machine)
        inside, between = (link, between) if link.inside_machine else (inside, link)
    return inside, between
