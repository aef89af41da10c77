from collections.abc import Iterable
from typing import Any, Final

MAX_SLOTS: Final[int]
MAX_PAIRS: Final[int]
MAX_MODELS: Final[int]
MAX_GROUPS: Final[int]
MAX_PROCESSES: Final[int]
MAX_BLOB_BYTES: Final[int]
OUTCOME_NAMES: Final[tuple[str, ...]]
FAILURE_NAMES: Final[tuple[str, ...]]
HIST_NAMES: Final[tuple[str, ...]]
SIZES: Final[dict[str, int]]

class Segment:
    """One mapping of the shared segment; csrc/fleet.h says who may write what."""

    fd: int
    alarm_fd: int  # an eventfd; -1: none
    processes: int
    blob_generation: int
    draining: bool
    serving: int
    @staticmethod
    def create(processes: int, prefix_bytes: int) -> Segment:
        """A new segment in a memfd; raises ValueError for too many processes, MemoryError."""
    @staticmethod
    def attach(fd: int, alarm_fd: int = -1) -> Segment:
        """The segment behind a descriptor; raises ValueError if another version made it."""
    def layout(self) -> dict[str, tuple[int, int]]:
        """Offset and bytes of each part of the mapping, in order."""
    def write_row(
        self,
        slot: int,
        *,
        eligible: bool,
        trickle: bool = ...,
        followed: bool = ...,
        generation: int,
        weight: float = ...,
        ramp: float = ...,
        max_concurrency: int,
        max_queue: int = ...,
        running: int = ...,
        waiting: int = ...,
        foreign_seqs: float = ...,
        foreign_waiting: float = ...,
        kv_usage: float = ...,
        hit_ratio: float = ...,
        kv_capacity_tokens: int = ...,
        scraped_at_ns: int = ...,
        used: bool = ...,
    ) -> None:
        """All that control knows of a replica; a new generation forgets its prefixes.

        Args:
            slot: 0 to MAX_SLOTS - 1.
            eligible: takes new requests.
            trickle: half-open, one request at a time.
            followed: store_prefixes counts what enters the cache; leases do not.
            generation: counts restarts of the replica and reuses of the slot.
            weight: relative speed, 0 or more.
            ramp: slow start, 0 to 1.
            max_concurrency: requests in flight that are 100 % load.
            max_queue: engine queue depth above which it takes none, 0: off.
            running, waiting: scraped, -1: unknown.
            foreign_seqs, foreign_waiting: load of others, smoothed.
            kv_usage, hit_ratio: ratios, NaN: unknown.
            kv_capacity_tokens: 0: unknown.
            scraped_at_ns: 0: never.
            used: a replica lives here.
        """
    def clear_row(self, slot: int) -> None:
        """The replica is gone; the slot may be used again once `requests` is 0."""
    def row(self, slot: int) -> dict[str, Any] | None:
        """What write_row wrote; None if it could not be read whole."""
    def store_prefixes(self, slot: int, keys: Iterable[int], blocks: int) -> None:
        """An engine has stored blocks in its prefix cache.

        Args:
            slot: the replica's; its row is `followed`.
            keys: of prompts; they are resident, and the most recently used.
            blocks: of 64 tokens that entered the cache, with or without a key; older entries age.
        """
    def remove_prefixes(self, slot: int, keys: Iterable[int]) -> None:
        """An engine has dropped blocks: what the table holds of these keys there is void."""
    def sweep_prefixes(self, part: float = ...) -> int:
        """Free dead entries in the next part of the prefix table; how many were alive.

        Control calls it each second, so that the whole table is seen in about a minute.
        """
    def requests(self, slot: int) -> int:
        """Leases open on a slot, in all processes."""
    def cell(self, slot: int) -> dict[str, Any]:
        """Everything of one replica, summed over the processes (counters: and the archive)."""
    def evidence(
        self, slot: int, generation: int = ..., now_ns: int = ...
    ) -> tuple[int, int, int, int, int, int, int, int, int, int, float, float, float]:
        """What health judges a replica by, in the order that the source names."""
    def alarm(self) -> None:
        """Make `alarm_fd` readable: a replica failed, and control should look at once."""
    def process(self, process: int) -> dict[str, Any]:
        """Gauges and counters of one process; `processes` is the archive."""
    def retire(self, process: int) -> None:
        """Fold a dead process into the archive; its in-flight is gone with it."""
    def counters(self) -> dict[int, int]:
        """Counters by packed key, over all processes; see unpack_series."""
    def model(self, model: int) -> dict[str, Any]:
        """Counters and histograms of a model id."""
    def pair(self, pair: int) -> dict[str, Any]:
        """In-flight gauges and the TTFT histogram of a (slot, model) pair."""
    def totals(self, pairs: Iterable[int], models: Iterable[int]) -> dict[str, Any]:
        """TTFT of all these pairs together, TPOT and number of requests of all these models."""
    def publish(self, blob: bytes) -> int:
        """Put a document in force; its generation. Raises ValueError if it is too long."""
    def blob(self) -> tuple[int, bytes] | None:
        """Generation and bytes of the document in force; None before the first one."""
    def beat(self, now_ns: int) -> None:
        """Control lives."""

def unpack_series(key: int) -> tuple[int, int, int, int, int]:
    """(kind, a, b, c, d) of a key of Segment.counters()."""
