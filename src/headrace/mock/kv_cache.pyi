class KvCache:
    """Reference-counted KV blocks with an LRU prefix cache; its calls are for Cython only."""

    capacity_blocks: int

    def __init__(self, capacity_blocks: int) -> None: ...
