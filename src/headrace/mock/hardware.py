"""The GPUs of one replica: their load, and what can be wrong with them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.mock.presets import Preset

XID_TEXTS = {
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "Preemptive cleanup, due to previous errors",
    48: "Double Bit ECC Error",
    63: "Row remapping recording event",
    64: "Row remapping recording failure",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    119: "GSP RPC timeout",
    120: "GSP error",
}
LOST_XID = 79
ENGINE_KILLING_XIDS = {48, 79, 94, 95, 119, 120}


@dataclass(slots=True)
class Gpu:
    """One GPU; `heat` is the factor by which it is throttled, `nvlink_ratio` what is left of its
    links' bandwidth."""

    xid: int = 0
    lost: bool = False
    heat: float = 1.0
    nvlink_ratio: float = 1.0
    single_bit_errors: int = 0
    double_bit_errors: int = 0
    remap_failure: bool = False

    def raise_xid(self, code: int) -> None:
        """Report an XID, with what comes with it."""
        self.xid = code
        self.lost = code == LOST_XID
        self.double_bit_errors += code in (48, 95)
        self.remap_failure |= code == 64
        if code == 74:
            self.nvlink_ratio = 0.01


class Hardware:
    """The GPUs of one replica and the share of time they are busy."""

    MEASURED_OVER_NS = 1_000_000_000

    def __init__(self, preset: Preset) -> None:
        self.card = preset.card
        self.gpus = [Gpu() for _ in range(preset.gpus)]
        self.busy_ratio = 0.0
        self._seen_busy_ns = 0
        self._seen_at_ns = 0

    def measure(self, busy_ns: int, now_ns: int) -> None:
        """Take the engine's busy time; the ratio is renewed at most once a second."""
        passed_ns = now_ns - self._seen_at_ns
        if busy_ns < self._seen_busy_ns or passed_ns < 0:  # another life of the engine
            self._seen_busy_ns, self._seen_at_ns = busy_ns, now_ns
        elif passed_ns >= self.MEASURED_OVER_NS:
            self.busy_ratio = min(1.0, (busy_ns - self._seen_busy_ns) / passed_ns)
            self._seen_busy_ns, self._seen_at_ns = busy_ns, now_ns

    def repair(self) -> None:
        self.gpus = [Gpu() for _ in self.gpus]
