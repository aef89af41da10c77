from collections.abc import Iterable

_Sample = tuple[str, float, dict[str, str]]

class Scanner:
    """Reads the wanted series of Prometheus text and OpenMetrics pages, and nothing else."""

    def __init__(
        self, names: Iterable[str], labels: Iterable[str] = (), capacity: int = 4096
    ) -> None:
        """Prepare for `names`, exact sample names such as `vllm:num_requests_running`.

        `labels` are the label names to keep; `capacity` bounds the samples taken from one page.
        Raises ValueError for more than 128 names, or one that is empty, twice there or over 63
        bytes.
        """

    def scan(self, page: bytes) -> tuple[list[_Sample], int]:
        """Return the samples in page order as (name, value, labels), and how many were dropped.

        Values may be NaN or infinite; lines with the same labels share one dict. Dropped are
        wanted lines that are malformed and those beyond the capacity; what is malformed in other
        lines is not looked at.
        """

def unescape(text: str) -> str:
    r"""Undo the escapes `\n`, `\"` and `\\` of a label value; an unknown escape stays as it is."""

def read_number(text: bytes) -> float | None:
    """Return the number that `text` consists of, or None; right to one unit in the last place."""
