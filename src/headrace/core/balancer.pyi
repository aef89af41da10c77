from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from headrace.core.books import Books
from headrace.core.lease import POLICIES as POLICIES
from headrace.core.lease import Lease
from headrace.core.request import RouteRequest
from headrace.core.segment import Segment

class Verdict(IntEnum):
    ROUTED = 0
    NO_REPLICA = 1
    OVERLOADED = 2
    GATEWAY_FULL = 3
    RETRY_DENIED = 4

class Balancer:
    """One process's hands on the segment: it routes, and books what its leases do.

    Args:
        segment: shared with the other processes.
        process: whose cells are written, 0 to segment.processes - 1; segment.processes: a reader
            that can explain but not route.
        settings: all keys of `routing`, `admission` and `retry` in one dict; perhaps `seed`.
    """

    books: Books
    policy: int
    settings: Mapping[str, Any]
    def __init__(self, segment: Segment, process: int, settings: dict[str, Any]) -> None: ...
    def configure(self, settings: dict[str, Any]) -> None:
        """Take over settings; raises ValueError for an unknown policy."""
    def open(self, request: RouteRequest, now_ns: int) -> tuple[int, Lease]:
        """(verdict, lease): the lease is open if the verdict is ROUTED."""
    def reopen(
        self, request: RouteRequest, failed: Lease, failure: int, now_ns: int
    ) -> tuple[int, Lease]:
        """(verdict, lease) of a retry elsewhere; `failed` has ended."""
    def wait_s(self, model: int, now_ns: int) -> float:
        """Seconds until a refused request is worth another try, 1 to 60."""
    def advance(self, now_ns: int) -> None:
        """What time alone brings about, without a request."""
    def enter(self, count: int) -> None:
        """Requests that entered (negative: left), for admission.max_concurrent_requests."""
    def budget(self, now_ns: int) -> float:
        """Retries that the budget allows now."""
    def choose(self, request: RouteRequest, now_ns: int, times: int = ...) -> int | None:
        """The slot that would be chosen, `times` over without taking it; None: nobody."""
