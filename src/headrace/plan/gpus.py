"""The accelerators that `headrace plan` knows: `gpus.csv`, dense figures off the vendor sheets."""

from __future__ import annotations

import msgspec

from headrace.plan.names import lookup, plain
from headrace.plan.tables import read_table

GIB = 1 << 30

# GDDR cards keep their ECC code in the memory itself: a sixteenth of it (an A10 of 24 GiB shows
# 23 028 MiB). HBM stacks have room of their own for it.
_INLINE_ECC_RATIO = 15 / 16


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One card. Bandwidth in GB/s, compute in dense TFLOPS; 0 where the card lacks the type.

    `link` names the way to the other cards of its machine (see `links`), `resource` what Kubernetes
    calls the card, `node_label` what GPU feature discovery writes on its machines, `source` the
    sheet that the row was copied from.
    """

    name: str
    memory_gib: float
    bandwidth_gbps: float
    bf16_tflops: float
    link: str
    resource: str
    source: str
    ecc_in_memory: bool = False
    fp8_tflops: float = 0.0
    int8_tops: float = 0.0
    node_label: str = ""

    @property
    def memory_bytes(self) -> int:
        """What the driver shows of the memory."""
        ratio = _INLINE_ECC_RATIO if self.ecc_in_memory else 1.0
        return int(self.memory_gib * GIB * ratio)

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Peak memory bandwidth."""
        return self.bandwidth_gbps * 1e9

    def flops_per_s(self, weights_dtype: str) -> float:
        """Peak dense rate of a matrix product with weights of that type.

        int4 is a way of storing: the product itself runs in 16 bit. So does a type that the card
        has no units for.
        """
        narrow = {"fp8": self.fp8_tflops, "int8": self.int8_tops}.get(weights_dtype, 0.0)
        return max(narrow, self.bf16_tflops) * 1e12


GPUS: dict[str, Gpu] = {gpu.name: gpu for gpu in read_table("gpus.csv", Gpu)}

# What people say when they mean the usual form of a card.
_ALIASES = {
    "A10G": "A10",
    "4090": "RTX4090",
    "5090": "RTX5090",
    "GeForce-RTX-4090": "RTX4090",
    "A100": "A100-80G",
    "A100-SXM": "A100-80G",
    "A100-PCIE": "A100-80G-PCIE",
    "A100-40GB": "A100-40G",
    "A100-80GB": "A100-80G",
    "H100": "H100-SXM",
    "H100-SXM5": "H100-SXM",
    "H200-SXM": "H200",
    "910B": "Ascend-910B",
}
_BY_ALIAS = {plain(alias): name for alias, name in _ALIASES.items()}


def find_gpu(name: str) -> Gpu:
    """The card of that name, whatever its case and punctuation; `H100` means the SXM one.

    Raises PlanError with the nearest names when there is none.
    """
    return lookup(_BY_ALIAS.get(plain(name), name), GPUS, "gpu")
