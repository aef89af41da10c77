"""A replica as the library's user names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine behind one URL (a tensor-parallel group counts as one); plain data.

    Args:
        url: http or https, host, port, perhaps a path.
        models: the names it serves.
        weight: relative speed, 0 or more; 0: only if nobody else can.
        max_concurrency: requests in flight that count as 100 % load; None: the router's setting.
        max_queue: engine queue depth above which it takes no request; None: the router's setting.
        labels: not looked at, for your own use.
    """

    url: str
    models: Sequence[str] = ("m",)
    weight: float = 1.0
    max_concurrency: int | None = None
    max_queue: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
