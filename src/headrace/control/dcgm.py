"""A DCGM exporter's page as one sample for each GPU; and which of them belong to a replica.

Values that mean "no value" or cannot be are dropped; what is missing is None: unknown, never zero.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headrace.core.promtext import Scanner

# DCGM's own test for "no value" is >= the blank of the type: int32 0x7ffffff0, int64
# 0x7ffffffffffffff0, float 2^47 (dcgm_fields.h, DCGM_INT32_BLANK and the like). The smallest of
# them is above every limit below, so one comparison with the limit finds them all.
MAX_COUNT = 1e6


def mean(values: Iterable[float]) -> float:
    """Return the mean of at least one value."""
    listed = list(values)
    return sum(listed) / len(listed)


@dataclass(frozen=True, slots=True)
class Field:
    """One figure: its series, the highest possible value, how MIG slices combine, its unit."""

    name: str
    series: tuple[str, ...]
    highest: float
    combine: Callable[[Iterable[float]], float] = max
    scale: float = 1.0


FIELDS = (
    Field("util", ("DCGM_FI_DEV_GPU_UTIL",), 100, mean, 0.01),
    Field("engine_active", ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",), 1, mean),
    Field("dram_active", ("DCGM_FI_PROF_DRAM_ACTIVE",), 1, mean),
    Field("temp_celsius", ("DCGM_FI_DEV_GPU_TEMP",), 150),
    Field("memory_temp_celsius", ("DCGM_FI_DEV_MEMORY_TEMP",), 150),
    Field("sm_clock_mhz", ("DCGM_FI_DEV_SM_CLOCK",), 10_000),
    Field("power_w", ("DCGM_FI_DEV_POWER_USAGE",), 5_000),
    Field("used_mib", ("DCGM_FI_DEV_FB_USED",), 1e7, sum),
    Field("free_mib", ("DCGM_FI_DEV_FB_FREE",), 1e7, sum),
    Field(
        "clock_reasons",
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
        0xFFFF,
    ),
    Field("xid", ("DCGM_FI_DEV_XID_ERRORS",), 999),
    Field("dbe_total", ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",), MAX_COUNT),
    Field("sbe_total", ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",), 1e9),
    Field("remap_failure", ("DCGM_FI_DEV_ROW_REMAP_FAILURE",), 1),
    Field("uncorrectable_rows", ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",), MAX_COUNT),
    # TYPE says counter, the value is a rate: MB/s, sent and received together.
    Field("nvlink_mb_per_s", ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",), 1e7),
    Field("health", ("DCGM_EXP_GPU_HEALTH_STATUS",), 20),
)
IDENTITY = ("gpu", "UUID", "Hostname", "hostname", "GPU_I_ID")
OWNER = ("pod", "exported_pod", "namespace", "exported_namespace")
SERIES = {series: entry for entry in FIELDS for series in entry.series}
# What a GPU shows while it is on the bus, whatever it does. A lost one keeps its Xid at most.
SIGNS_OF_LIFE = ("util", "engine_active", "temp_celsius", "sm_clock_mhz", "power_w", "used_mib")
SCANNER = Scanner(SERIES, [*IDENTITY, *OWNER], capacity=16384)


@dataclass(slots=True)
class GpuSample:
    """One reading of a GPU; None is unknown. The slices of a MIG GPU are taken together."""

    index: str  # DCGM's, not the order in CUDA_VISIBLE_DEVICES
    uuid: str
    host: str = ""
    pods: set[tuple[str, str]] = field(default_factory=set)  # (namespace, pod)
    util: float | None = None  # ratio
    engine_active: float | None = None  # ratio
    dram_active: float | None = None  # ratio
    temp_celsius: float | None = None
    memory_temp_celsius: float | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    used_mib: float | None = None
    free_mib: float | None = None
    clock_reasons: float | None = None  # bits
    xid: float | None = None  # the last one, sticky
    dbe_total: float | None = None
    sbe_total: float | None = None
    remap_failure: float | None = None
    uncorrectable_rows: float | None = None
    nvlink_mb_per_s: float | None = None
    health: float | None = None  # 0 pass, 10 warn, 20 fail

    @property
    def key(self) -> str:
        """What identifies the GPU from page to page: its UUID, else host and index."""
        return self.uuid or f"{self.host}/{self.index}"

    @property
    def is_alive(self) -> bool:
        """True if the page shows any figure that only a GPU on the bus has."""
        return any(getattr(self, name) is not None for name in SIGNS_OF_LIFE)

    @property
    def activity(self) -> float | None:
        """Utilisation as a ratio; on MIG, which has none, the share of time with work."""
        return self.engine_active if self.util is None else self.util


def read_page(page: bytes) -> tuple[list[GpuSample], int]:
    """Return the GPUs of an exporter's page in its order, and how many values were dropped.

    Any bytes are accepted. NaN is no value and not counted.
    """
    samples, bad = SCANNER.scan(page)
    gpus: dict[tuple[str, str, str], GpuSample] = {}
    values: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for name, value, labels in samples:
        host = labels.get("Hostname") or labels.get("hostname", "")
        identity = (host, labels.get("UUID", ""), labels.get("gpu", ""))
        gpu = gpus.get(identity)
        if gpu is None:
            gpu = gpus[identity] = GpuSample(labels.get("gpu", ""), labels.get("UUID", ""), host)
            values[identity] = {}
        add_owner(gpu, labels)
        entry = SERIES[name]
        if 0 <= value <= entry.highest:
            values[identity].setdefault(entry.name, []).append(value * entry.scale)
        elif value == value:
            bad += 1
    for identity, gpu in gpus.items():
        bad += fill(gpu, values[identity])
    return list(gpus.values()), bad


def add_owner(gpu: GpuSample, labels: dict[str, str]) -> None:
    """Note the pod that a line says the GPU is given to.

    After relabelling by Prometheus the exporter's own labels are called exported_…, and the plain
    ones name the exporter's pod. Free GPUs have none, or empty ones.
    """
    pod = labels.get("exported_pod") or labels.get("pod")
    if pod:
        space = labels.get("exported_namespace") or labels.get("namespace", "")
        gpu.pods.add((space, pod))


def fill(gpu: GpuSample, values: dict[str, list[float]]) -> int:
    """Set the figures of a GPU from its lines; return how many were dropped."""
    for entry in FIELDS:
        lines = values.get(entry.name)
        if lines:
            setattr(gpu, entry.name, entry.combine(lines))
    if gpu.used_mib == 0 and gpu.free_mib == 0:  # no frame buffer at all: the reading failed
        gpu.used_mib = gpu.free_mib = None
        return 2
    return 0


def select(
    gpus: Sequence[GpuSample],
    wanted: Sequence[str | int] | None = None,
    pod: tuple[str, str] | None = None,
) -> list[GpuSample]:
    """Return the GPUs of a page that belong to a replica.

    `wanted` are DCGM indices or UUIDs as configured; `pod` is (namespace, name), where an empty
    namespace fits any. Without both, every GPU of the page belongs to the replica.
    """
    if wanted is not None:
        names = {str(one) for one in wanted}
        return [gpu for gpu in gpus if gpu.index in names or gpu.uuid in names]
    if pod is not None:
        space, name = pod
        return [
            gpu
            for gpu in gpus
            if any(own == name and space in ("", its_space) for its_space, own in gpu.pods)
        ]
    return list(gpus)
