"""Who goes first when a model has a replica too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

# The worst health goes first: nobody misses it.
HEALTH = {"ejected": 0, "drained": 0, "draining": 1, "warming": 2, "degraded": 3, "ready": 4}


def key(state: str, requests: int, cached_value: float) -> tuple[int, int, float]:
    """Sorts victims: worst health first, then fewest requests in flight, then the coldest cache."""
    return HEALTH.get(state, 4), requests, cached_value


def order(control: Control, members: list[Member]) -> list[str]:
    """Replica ids, first to go first. A cache is worth what it hits: hit ratio times KV in use."""
    keyed = []
    for member in members:
        row = control.segment.row(member.slot) or {}
        hits, usage = row.get("hit_ratio", 0.0), row.get("kv_usage", 0.0)
        value = hits * usage if hits == hits and usage == usage else 0.0
        keyed.append((key(member.state, control.segment.requests(member.slot), value), member.id))
    return [name for _, name in sorted(keyed)]
