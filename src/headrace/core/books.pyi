from collections.abc import Sequence
from typing import Any

from headrace.core.segment import Segment

class Books:
    """What one process knows of the fleet: view, learned rates, models and who serves them.

    Args:
        segment: shared with the other processes.
        process: whose cells are written, 0 to segment.processes - 1; segment.processes: a reader.
    """

    segment: Segment
    process: int
    def __init__(self, segment: Segment, process: int) -> None: ...
    def set_replica(self, slot: int, id: str) -> None:
        """The name behind a slot, from which hashing policies place it."""
    def set_model(self, model: int, group: int, slots: Sequence[int], pairs: Sequence[int]) -> None:
        """A model is served by these slots, each under the pair at the same place."""
    def clear_model(self, model: int) -> None:
        """The model is unknown."""
    def forget_view(self) -> None:
        """Rows have changed: the next decision reads them, whenever it comes."""
    def learned(self, group: int) -> dict[str, Any]:
        """What is learned of a group of models."""
