def block_hashes(data: bytes, block_bytes: int, seed: int) -> bytes:
    """Native unsigned 64-bit hashes of the full blocks of `data`, each over its block and, through
    the hash before it (for the first: `seed`), over all earlier ones."""
