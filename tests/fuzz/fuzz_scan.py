"""Mutates bodies at random and compares the scanner with its references.

Run: python tests/fuzz/fuzz_scan.py --seconds 60
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))
import scan_oracle as oracle
from mutation import piece

from headrace.core.scan import BodyScan

SEEDS = [
    b'{"model":"m","messages":[{"role":"user","content":"Hello \\u5317 \xc3\xa9 \\ud83d\\ude00"}],'
    b'"stream":true,"stream_options":{"include_usage":false},"n":1,"max_tokens":16}',
    b'{"messages":[{"role":"user","content":[{"type":"text","text":"a\\n\\"b\\""},'
    b'{"type":"image_url","image_url":{"url":"data:image\\/png;base64,AAAA"}}]}],'
    b'"tools":[{"type":"function","function":{"name":"f","parameters":{"a":[1,-2.5e3,null]}}}]}',
    b'{"prompt":[[1,2,3],[4,5]],"user":"u","cache_salt":"s","seed":1e400,"x":[[],{},[{}]]}',
    b'{"input":[{"role":"user","content":"\xe5\x8c\x97"},"x"],"instructions":"be brief"}',
]
JUNK = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\\u", b"\\ud83d", b"0", b"-", b"e", b".",
    b"null", b"NaN", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xff", b"\0", b"\n", b" ", b"[" * 1030,
]  # fmt: skip


def mutate(random_source: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(random_source.randint(1, 4)):
        at = random_source.randint(0, len(changed))
        size = random_source.choice((0, 0, 1, 1, 2, 8))
        changed[at : at + size] = piece(random_source, JUNK, SEEDS, 0.5, 30)
    return bytes(changed)


def check(body: bytes) -> bool:
    try:
        scan = BodyScan(body)
    except ValueError:
        scan = None
    try:
        known = isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        known = oracle.beyond_orjson(body) and oracle.accepts(body)
    assert (scan is not None) == known, body
    if scan is None:
        return False
    keys = scan.prefix_keys()
    assert scan.prefix_keys(3) == keys[:3], body
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random_source = random.Random(args.seed)
    deadline = time.monotonic() + args.seconds
    bodies = accepted = 0
    pool = list(SEEDS)
    while time.monotonic() < deadline:
        body = mutate(random_source, random_source.choice(pool))
        bodies += 1
        if check(body):
            accepted += 1
            if len(body) < 2000:
                pool[len(SEEDS) :] = [*pool[len(SEEDS) :][-200:], body]
    print(json.dumps({"bodies": bodies, "accepted": accepted}))


if __name__ == "__main__":
    main()
