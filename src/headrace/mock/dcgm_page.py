"""A DCGM exporter's `/metrics` page for the GPUs of all replicas, in the form of exporter 4.5.

As there, a GPU without an XID has no XID line, and a lost GPU has no other line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.mock.hardware import XID_TEXTS, Gpu, Hardware

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HOT_FROM = 1.2  # throttled by more than this: thermal slow-down is reported
THERMAL_REASONS = 0x08 | 0x20 | 0x40
BUSY_NVLINK_MB_PER_S = 22_000


@dataclass(slots=True)
class Reading:
    """One GPU at one moment: `busy` is a ratio, `nvlink` what its group lets through."""

    number: int
    gpu: Gpu
    card: str
    busy: float
    nvlink: float

    @property
    def hot(self) -> bool:
        return self.gpu.heat > HOT_FROM

    def labels(self) -> str:
        n = self.number
        uuid = f"GPU-6d6f636b-0000-4000-8000-{n:012x}"
        pairs = {
            "gpu": str(n),
            "UUID": uuid,
            "pci_bus_id": f"00000000:{16 + n % 240:02X}:00.0",
            "device": f"nvidia{n}",
            "modelName": self.card,
            "Hostname": "mock",
            "DCGM_FI_DRIVER_VERSION": "570.133.20",
        }
        return ",".join(f'{name}="{value}"' for name, value in pairs.items())


Value = Callable[[Reading], float | int]
FIELDS: tuple[tuple[str, str, str, Value], ...] = (
    ("DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda r: int(1980 / r.gpu.heat)),
    ("DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", lambda r: 2619),
    (
        "DEV_CLOCKS_EVENT_REASONS",
        "gauge",
        "Current clock event reasons (bitmask).",
        lambda r: THERMAL_REASONS if r.hot else int(r.busy == 0.0),
    ),
    (
        "DEV_MEMORY_TEMP",
        "gauge",
        "Memory temperature (in C).",
        lambda r: 101 if r.hot else int(44 + 24 * r.busy),
    ),
    (
        "DEV_GPU_TEMP",
        "gauge",
        "GPU temperature (in C).",
        lambda r: 90 if r.hot else int(34 + 24 * r.busy),
    ),
    (
        "DEV_POWER_USAGE",
        "gauge",
        "Power draw (in W).",
        lambda r: float(90 + 350 * r.busy / r.gpu.heat),
    ),
    ("DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", lambda r: round(100 * r.busy)),
    ("DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", lambda r: round(58 * r.busy)),
    (
        "DEV_ECC_SBE_VOL_TOTAL",
        "counter",
        "Total number of single-bit volatile ECC errors.",
        lambda r: r.gpu.single_bit_errors,
    ),
    (
        "DEV_ECC_DBE_VOL_TOTAL",
        "counter",
        "Total number of double-bit volatile ECC errors.",
        lambda r: r.gpu.double_bit_errors,
    ),
    (
        "DEV_ROW_REMAP_FAILURE",
        "gauge",
        "Whether remapping of rows has failed",
        lambda r: int(r.gpu.remap_failure),
    ),
    (
        "DEV_NVLINK_BANDWIDTH_TOTAL",
        "counter",
        "Total number of NVLink bandwidth counters for all lanes.",
        lambda r: int(BUSY_NVLINK_MB_PER_S * r.busy * r.nvlink),
    ),
    (
        "PROF_GR_ENGINE_ACTIVE",
        "gauge",
        "Ratio of time the graphics engine is active.",
        lambda r: float(r.busy),
    ),
    (
        "PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        lambda r: 0.24 * r.busy / r.gpu.heat,
    ),
    (
        "PROF_DRAM_ACTIVE",
        "gauge",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        lambda r: 0.6 * r.busy / r.gpu.heat,
    ),
)
XID_NAME = "DCGM_FI_DEV_XID_ERRORS"


def readings(fleet: Sequence[Hardware]) -> list[Reading]:
    """All GPUs, numbered through in the order of the replicas."""
    found: list[Reading] = []
    for hardware in fleet:
        # A tensor-parallel group waits for its slowest link: its peers fall to a tenth.
        slowest = min(gpu.nvlink_ratio for gpu in hardware.gpus)
        for gpu in hardware.gpus:
            others = 1.0 if slowest == 1.0 else 0.1
            share = gpu.nvlink_ratio if gpu.nvlink_ratio < 1.0 else others
            nvlink = share if len(hardware.gpus) > 1 else 0.0
            found.append(Reading(len(found), gpu, hardware.card, hardware.busy_ratio, nvlink))
    return found


def render(fleet: Sequence[Hardware]) -> bytes:
    """The page."""
    everyone = readings(fleet)
    present = [reading for reading in everyone if not reading.gpu.lost]
    lines: list[str] = []
    for name, kind, text, value in FIELDS:
        if present:
            lines += _head(f"DCGM_FI_{name}", kind, text)
        for reading in present:
            shown = value(reading)
            number = f"{shown:f}" if isinstance(shown, float) else str(shown)
            lines.append(f"DCGM_FI_{name}{{{reading.labels()}}} {number}")
    troubled = [reading for reading in everyone if reading.gpu.xid]
    if troubled:
        lines += _head(XID_NAME, "gauge", "Value of the last XID error encountered.")
    for reading in troubled:
        code = reading.gpu.xid
        text = XID_TEXTS.get(code, "Unknown Error")
        labels = f'{reading.labels()},err_code="{code}",err_msg="{text}"'
        lines.append(f"{XID_NAME}{{{labels}}} {code}")
    return "".join(f"{line}\n" for line in lines).encode()


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
