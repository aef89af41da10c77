"""The routing rules once more in plain Python, to hold csrc against."""

import math

from headrace.core.hashing import hash64

MASK = (1 << 64) - 1
POINTS = 128
START = {"base_s": 0.020, "seq_s": 0.0001, "token_s": 1e-4, "output": 200.0, "uncached": 500.0}


def mix(a, b):
    """hash_mix of csrc/hash.h."""
    h = a ^ ((b << 27 | b >> 37) & MASK) * 0x9E3779B185EBCA87 & MASK
    h ^= h >> 33
    h = h * 0xC2B2AE3D27D4EB4F & MASK
    h ^= h >> 29
    h = h * 0x165667B19E3779F9 & MASK
    return h ^ h >> 32


def ring(names):
    """(hash, slot) ascending; names by slot."""
    points = [
        (mix(hash64(n.encode()), i), slot) for slot, n in enumerate(names) for i in range(POINTS)
    ]
    return sorted(points)


def bounded(points, key, loads, load_factor):
    """Slot by consistent hashing with bounded loads, or None where the last resort decides."""
    limit = max(2.0, load_factor * (sum(loads) + 1) / len(loads))
    start = next((i for i, (h, _) in enumerate(points) if h >= key), 0)
    for _, slot in points[start:] + points[:start]:
        if loads[slot] + 1 <= limit:
            return slot
    return None


def cost(row, prompt_tokens, output_tokens, rates=START, sequences=1):
    """The study's formula for a replica; `row` has the names of the terms of /explain."""
    n = row["sequences"] + row["foreign_sequences"]
    pace = rates["base_s"] + rates["seq_s"] * n
    hit = row["hit_tokens"]
    u = max(1.0, prompt_tokens - hit)
    pending_s = row["pending_tokens"] * rates["token_s"]
    pending_s += row["foreign_waiting"] * rates["uncached"] * rates["token_s"]
    own = 1.5 * pace + pending_s + u * rates["token_s"]
    own += 0.2 * n * rates["output"] * rates["seq_s"]
    full = 0.0
    if row["kv_capacity_tokens"]:
        used = row["kv_tokens"] + u + 0.3 * hit + output_tokens * sequences / 2
        full = max(0.0, used / row["kv_capacity_tokens"] - 0.9) * output_tokens * pace
    speed = row["slowness"] / (row["weight"] or 1.0)
    return speed * (own + full) + u * rates["token_s"]


class Bucket:
    """The retry budget without a word to live in: d tokens/dt = floor - tokens / 10 s."""

    def __init__(self, ratio, floor, now_s):
        self.ratio, self.floor, self.at_s, self.tokens = ratio, floor, now_s, floor

    def advance(self, now_s):
        level = self.floor * 10
        self.tokens = level + (self.tokens - level) * math.exp((self.at_s - now_s) / 10)
        self.at_s = now_s


class Residency:
    """An unbounded prefix cache of each slot, by the rules of the table."""

    def __init__(self, capacity):
        self.capacity, self.count, self.used = capacity, {}, {}

    def insert(self, slot, keys, added):
        self.count[slot] = self.count.get(slot, 0) + added
        for key in keys:
            self.used[slot, key] = self.count[slot]

    def forget(self, slot):
        self.used = {at: n for at, n in self.used.items() if at[0] != slot}

    def match(self, slot, keys):
        """(blocks, age ratio) of the deepest resident block."""
        for i in range(len(keys), 0, -1):
            used = self.used.get((slot, keys[i - 1]))
            if used is not None and self.count[slot] - used < self.capacity:
                return i, (self.count[slot] - used) / self.capacity
        return 0, 0.0
