def hash64(data: bytes, seed: int = 0) -> int:
    """XXH64 of `data`: an unsigned 64-bit integer, equal in every process, host and release."""
