"""What mutations put in: shared by the fuzzers of bodies and of messages."""

import random


def piece(
    chance: random.Random, junk: list[bytes], others: list[bytes], likely: float, longest: int
) -> bytes:
    """Junk (`likely` of the time), random bytes, or at most `longest` bytes of another text."""
    kind = chance.random()
    if kind < likely:
        return chance.choice(junk)
    if kind < 0.8:
        return chance.randbytes(chance.randint(0, 3))
    other = chance.choice(others)
    start = chance.randint(0, len(other))
    return other[start : start + chance.randint(0, longest)]
