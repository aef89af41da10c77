"""Which GPU figures mean what for the replica on them: one table of rules, and nothing else.

gpu_judge.py holds the GPUs of a replica against it, page by page.
"""

from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    """What a finding asks for."""

    DRAIN = "drain"  # no new requests; running ones finish
    DEGRADE = "degrade"  # half the weight, while it lasts
    PROBE = "probe"  # suspicious: ask the model itself, at once
    NOTE = "note"  # for the operator only


class Kind(Enum):
    """How a rule looks at its signal."""

    NEW_CODE = "the value changes to one of the codes"
    RISE = "the value grows by the threshold or more within the window"
    LEVEL = "the value is at or above the threshold for the window"
    BITS = "one of the bits is set for the window"
    LOWEST = "one GPU is far below the others of its replica, which are busy, for the window"
    VANISHED = "the GPU was on the page and is not any more"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table; `signal` is a field of GpuSample."""

    name: str
    kind: Kind
    signal: str
    action: Action
    reason: str  # {gpu}: DCGM index, {value}: what was read
    source: str
    threshold: float = 0.0
    codes: frozenset[int] = frozenset()
    window_s: float = 0.0


XID_GUIDE = "NVIDIA, XID Errors, Xid catalog"
MEMORY_GUIDE = "NVIDIA, GPU Memory Error Management"
CLOCKS_GUIDE = "NVIDIA, NVML API Reference, clocks event reasons"
HEALTH_GUIDE = "NVIDIA, DCGM User Guide, health monitoring"
FIELDS_GUIDE = "NVIDIA, DCGM API Reference, field identifiers"

# The GPU or its link to the host is lost, or its memory cannot be trusted.
XID_FATAL = frozenset({48, 62, 64, 79, 95, 110, 119, 120, 140, 143})
# The link between GPUs, or contained memory errors: the running job dies, the GPU may serve on.
XID_SUSPICIOUS = frozenset({74, 94, 109, 121, 145, 149, 154})
# The program's fault, or bookkeeping (63: a row was remapped, as designed).
XID_HARMLESS = frozenset({8, 13, 31, 32, 37, 38, 43, 45, 63, 68, 69, 92, 106})

HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 0x08, 0x20, 0x40, 0x80
# Of the other bits, 0x01 (idle) and 0x04 (software power cap) are normal on a healthy, busy GPU.
THROTTLE_BITS = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE

LOWEST_RATIO = 0.25  # of the others' median: a collapsed link reads some hundredths of it
BUSY_RATIO = 0.5  # utilisation; idle replicas move nothing over NVLink either
LINK_FLOOR_MB_PER_S = 200.0  # traffic of the others below which a comparison says nothing

RULES = (
    Rule(
        "xid_fatal",
        Kind.NEW_CODE,
        "xid",
        Action.DRAIN,
        "GPU {gpu}: Xid {value}",
        XID_GUIDE,
        codes=XID_FATAL,
    ),
    Rule(
        "xid_suspicious",
        Kind.NEW_CODE,
        "xid",
        Action.PROBE,
        "GPU {gpu}: Xid {value}",
        XID_GUIDE,
        codes=XID_SUSPICIOUS,
    ),
    Rule(
        "xid_harmless",
        Kind.NEW_CODE,
        "xid",
        Action.NOTE,
        "GPU {gpu}: Xid {value}, of the application or informational",
        XID_GUIDE,
        codes=XID_HARMLESS,
    ),
    Rule(
        "ecc_double_bit",
        Kind.RISE,
        "dbe_total",
        Action.DRAIN,
        "GPU {gpu}: {value} new double-bit ECC errors",
        MEMORY_GUIDE,
        threshold=1,
    ),
    Rule(
        "row_remap_failure",
        Kind.RISE,
        "remap_failure",
        Action.DRAIN,
        "GPU {gpu}: row remapping failed, replace it",
        MEMORY_GUIDE,
        threshold=1,
    ),
    Rule(
        "uncorrectable_row",
        Kind.RISE,
        "uncorrectable_rows",
        Action.NOTE,
        "GPU {gpu}: {value} rows remapped for uncorrectable errors, reset it when convenient",
        MEMORY_GUIDE,
        threshold=1,
    ),
    Rule(
        "ecc_single_bit_storm",
        Kind.RISE,
        "sbe_total",
        Action.DEGRADE,
        "GPU {gpu}: {value} corrected ECC errors within 5 minutes",
        MEMORY_GUIDE,
        threshold=100,
        window_s=300,
    ),
    Rule(
        "health_failed",
        Kind.LEVEL,
        "health",
        Action.DRAIN,
        "GPU {gpu}: DCGM health check failed",
        HEALTH_GUIDE,
        threshold=20,
    ),
    Rule(
        "health_warning",
        Kind.LEVEL,
        "health",
        Action.NOTE,
        "GPU {gpu}: DCGM health warning ({value})",
        HEALTH_GUIDE,
        threshold=10,
    ),
    Rule(
        "throttled",
        Kind.BITS,
        "clock_reasons",
        Action.DEGRADE,
        "GPU {gpu}: slowed down by heat or power brake (clock event reasons {value})",
        CLOCKS_GUIDE,
        codes=frozenset({THROTTLE_BITS}),
        window_s=10,
    ),
    Rule(
        "hot",
        Kind.LEVEL,
        "temp_celsius",
        Action.DEGRADE,
        "GPU {gpu}: {value} °C",
        FIELDS_GUIDE,
        threshold=90,
        window_s=30,
    ),
    Rule(
        "memory_hot",
        Kind.LEVEL,
        "memory_temp_celsius",
        Action.DEGRADE,
        "GPU {gpu}: memory at {value} °C",
        FIELDS_GUIDE,
        threshold=105,
        window_s=30,
    ),
    Rule(
        "nvlink_collapse",
        Kind.LOWEST,
        "nvlink_mb_per_s",
        Action.DEGRADE,
        "GPU {gpu}: NVLink at {value} MB/s, far below its peers",
        FIELDS_GUIDE,
        window_s=10,
    ),
    Rule(
        "vanished",
        Kind.VANISHED,
        "",
        Action.PROBE,
        "GPU {gpu}: not on the exporter's page any more",
        "NVIDIA, DCGM Exporter: fields without a value are not printed",
    ),
)
