"""Small engines, prompts and runs for the tests of the engine model."""

from __future__ import annotations

import array

from headrace.mock.engine_model import NEVER_NS, Engine

COSTS = {"base_ns": 5e6, "prefill_ns": 30e3, "decode_ns": 25e3, "context_ns": 55.0}
US = 1000
MS = 1_000_000


def new_engine(**options):
    return Engine(**{**COSTS, "kv_tokens": 16 * 101, **options})


def packed(hashes):
    return array.array("Q", hashes).tobytes()


def chain(group, shared, request_id, count):
    """Hashes of `count` blocks, the first `shared` of them common to the group."""
    mine = 1_000_003 * (request_id + 1)
    return [(group + 1) * 1000 + i if i < shared else mine + i for i in range(count)]


def run_to_end(engine):
    """All events until nothing is left to do, and the time of the last."""
    events, now = [], 0
    while (next_ns := engine.next_event_ns()) != NEVER_NS:
        now = next_ns
        events += engine.advance(now)
    return events, now
