"""What simulated engines tell the routers of their caches, as KV events do."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from headrace import Router, RouteRequest
from headrace.mock.engine_model import Engine, derived_hash
from headrace.sim.traffic import BLOCK_TOKENS, MODEL, Ask


class CacheEvents:
    """Carries every engine's journal to all routers, without delay."""

    def __init__(self, routers: Sequence[Router], engines: Sequence[Engine]) -> None:
        self._routers = routers
        self._engines = engines
        self._keys: dict[int, int] = {}  # of the routers, by the engines' hash of the last block
        for engine in engines:
            engine.journal_blocks()

    def learn(self, ask: Ask) -> None:
        """What the blocks of a request and its answer are called on either side."""
        values = array("Q")
        values.frombytes(ask.hashes)
        whole = RouteRequest(MODEL, prefix=values)
        keys = self._routers[0].prefix_keys(whole)
        parts = BLOCK_TOKENS // self._engines[0].block_tokens
        for i, (value, key) in enumerate(zip(values, keys, strict=False)):
            self._keys[derived_hash(value, parts * i + parts - 1)] = key

    def tell(self, replica: int, url: str) -> None:
        """What happened to a replica's cache since the last time."""
        journal, tokens = self._engines[replica].journal_blocks()
        last = {self._keys[h]: stored for h, stored in journal if h in self._keys}
        stored = [key for key, is_stored in last.items() if is_stored]
        removed = [key for key, is_stored in last.items() if not is_stored]
        for router in self._routers:
            router.take_cache(url, stored=stored, removed=removed, stored_tokens=tokens)
