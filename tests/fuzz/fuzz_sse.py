"""Feeds random and damaged event streams in random pieces and compares the observer with itself
fed at once, and on sound streams with its oracle.

Run: python tests/fuzz/fuzz_sse.py --seconds 60
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))
import sse_oracle as oracle

from headrace.core.sse import EventStream, PlainAnswer

FIXTURES = Path(__file__).parents[1] / "fixtures"
REPORTED = (
    "events", "content_events", "finishes", "aborted", "seen", "head", "last", "usage_span",
    "usage",
)  # fmt: skip
JUNK = [
    b"\n", b"\r", b"\r\n", b"\n\n", b"data:", b"data: ", b"event: ", b": ", b'"', b"\\", b"{", b"}",
    b"[", b"]", b'"error":{', b'"choices":[]', b'"usage":{"prompt_tokens":3}', b"\xff", b"\0",
    b'"finish_reason":"abort"', b'"type":"error"', b"\\u0065", b"null",
]  # fmt: skip


def load_events() -> list[bytes]:
    """Whole events out of the captured streams."""
    found = []
    for path in sorted(FIXTURES.glob("vllm-*.http")):
        head, _, body = path.read_bytes().partition(b"\r\n\r\n")
        if b"text/event-stream" in head:
            found += [body[start:end] for start, end, _, _ in oracle.events(body)][-12:]
    return found


def mutate(random_source: random.Random, stream: bytes) -> bytes:
    changed = bytearray(stream)
    for _ in range(random_source.randint(1, 5)):
        at = random_source.randint(0, len(changed))
        junk = random_source.choice((random_source.choice(JUNK), random_source.randbytes(2)))
        changed[at : at + random_source.choice((0, 1, 3))] = junk
    return bytes(changed)


def report(stream: EventStream) -> dict:
    return {name: getattr(stream, name) for name in REPORTED}


def in_pieces(random_source: random.Random, stream: bytes) -> EventStream:
    observer = EventStream()
    longest = random_source.choice((1, 3, 20, 400))
    while stream:
        size = random_source.randint(1, longest)
        observer.feed(stream[:size])
        stream = stream[size:]
    return observer


def check(random_source: random.Random, stream: bytes, sound: bool) -> None:
    whole = EventStream()
    whole.feed(stream)
    pieces = in_pieces(random_source, stream)
    facts = report(whole) | {"error": whole.error, "in_event": whole.in_event}
    assert facts == report(pieces) | {"error": pieces.error, "in_event": pieces.in_event}, stream
    assert whole.position == len(stream)
    if sound:
        assert report(whole) == oracle.observe(stream), stream
    plain = PlainAnswer()
    plain.feed(stream.partition(b"data: ")[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random_source = random.Random(args.seed)
    deadline = time.monotonic() + args.seconds
    events = load_events()
    streams = 0
    while time.monotonic() < deadline:
        stream = b"".join(random_source.choices(events, k=random_source.randint(1, 6)))
        sound = random_source.random() < 0.3
        if not sound:
            stream = mutate(random_source, stream)
        check(random_source, stream, sound)
        streams += 1
    print(json.dumps({"streams": streams}))


if __name__ == "__main__":
    main()
