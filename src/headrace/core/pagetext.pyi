from collections.abc import Sequence

from headrace.core.segment import Segment

class Family:
    """The samples of one metric family, as lines of the text and OpenMetrics formats alike."""

    def __init__(self, name: str) -> None:
        """`name` is that of the samples, for counters with `_total`."""
    def add(self, labels: bytes, value: float | None) -> None:
        """A sample, unless its value is unknown: None or NaN.

        Args:
            labels: what stands between the braces, escaped; empty: none.
            value: an int must be 0 or more.
        """
    def add_histogram(
        self, labels: bytes, bounds: Sequence[float], counts: Sequence[int], total: float
    ) -> None:
        """A histogram by bucket, at most 64; raises ValueError unless there is one more count.

        Args:
            labels: as in `add`.
            bounds: ascending upper bounds; +Inf is left out.
            counts: samples of each bucket, not cumulative; the last one is +Inf's.
            total: sum of the samples.
        """
    def text(self) -> bytes:
        """All lines so far."""

def add_pair(
    segment: Segment,
    pair: int,
    labels: bytes,
    ttft: Family,
    inflight: Family | None = ...,
    inflight_tokens: Family | None = ...,
) -> None:
    """The series of a (slot, model) pair; without `inflight` only a TTFT that has samples."""

def add_model(
    segment: Segment,
    model: int,
    labels: bytes,
    *,
    prompt_tokens: Family,
    completion_tokens: Family,
    estimated_prompt_tokens: Family,
    queue_depth: Family,
    request_duration: Family,
    tpot: Family,
    itl: Family,
    queue_wait: Family,
) -> None:
    """The series of a model id."""

def add_overhead(segment: Segment, overhead: Family) -> None:
    """The histogram of the gateway's own time."""
