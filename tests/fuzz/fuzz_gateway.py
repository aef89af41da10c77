"""Throws mutated requests and mutated answers at a live data plane, on real sockets.

Whatever comes: the process lives, its counters go back to zero, a good request works afterwards,
the replica sees no request that the gateway did not mean to send, and the client no answer that
the gateway did not mean to give.

Run: python tests/fuzz/fuzz_gateway.py --seconds 60
"""

import argparse
import contextlib
import json
import random
import re
import sys
import time
from pathlib import Path

import httptools

sys.path.insert(0, str(Path(__file__).parents[2]))
from mutation import piece

from tests.proxy.conftest import Gateway, Replica, eventually

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
STREAM_BODY = BODY[:-1] + b',"stream":true}'
LINE = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n"


def post(body: bytes, lines: bytes = b"") -> bytes:
    return LINE + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


REQUESTS = [
    post(BODY),
    post(STREAM_BODY),
    LINE + CHUNKED % (len(BODY), BODY),
    post(BODY) + post(STREAM_BODY),
    post(BODY, b"Expect: 100-continue\r\n"),
    post(BODY, b"Connection: close, X-A\r\nX-A: 1\r\n"),
    LINE.replace(b"1.1", b"1.0") + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    b"GET /v1/models HTTP/1.1\r\nHost: g\r\n\r\n" + post(BODY),
    b"HEAD /health HTTP/1.1\r\nHost: g\r\n\r\n",
]
EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
PLAIN = b'{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}'
ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(PLAIN), PLAIN),
    EVENTS
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + chunk(EVENT)
    + chunk(EVENT + END)
    + b"0\r\n\r\n",
    EVENTS + b"Connection: close\r\n\r\n" + EVENT + END,
    b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\n" + PLAIN,
]
JUNK = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"\x0b", b"\xff",
    b"\r\n\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"5;a=\"\r\n",
    b"Content-Length: 5\r\n", b"Content-Length: +5\r\n",
    b"content-length: 99999999999999999999\r\n", b"Connection: content-length\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding : chunked\r\n",
    b"transfer-encoding: \tchunked\r\n", b"Transfer-Encoding: identity\r\n",
    b"Host: other\r\n", b" folded\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/2.0", SMUGGLED,
    b"x-request-id: fuzz\r\n", b"data: ", b"[DONE]", b"\xed\xa0\x80", b"a" * 70000,
]  # fmt: skip


def mutate(chance: random.Random, text: bytes, others: list[bytes]) -> bytes:
    """Text with one to three places changed."""
    changed = bytearray(text)
    for _ in range(chance.randint(1, 3)):
        border = chance.choice([m.end() for m in re.finditer(rb"\r\n", changed)] or [0])
        at = border if chance.random() < 0.5 else chance.randint(0, len(changed))
        size = chance.choice((0, 0, 0, 1, 2, 8))
        changed[at : at + size] = piece(chance, JUNK, others, 0.7, 60)
    return bytes(changed)


class Engine(Replica):
    """Reads requests one by one, whatever follows them, and answers `answer` in two pieces."""

    def __init__(self) -> None:
        self.answer = ANSWERS[0]
        self.cut = 0
        self.keeps = True
        self.faults: list[bytes] = []
        super().__init__(None)

    def _serve(self, connection) -> None:
        rest = b""
        with connection, contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in rest:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    rest += piece
                head, _, rest = rest.partition(b"\r\n\r\n")
                self.requests.append(head)
                lengths = re.findall(rb"(?i)\r\ncontent-length:[ \t]*(\d+)(?=\r\n|$)", head)
                if len(lengths) > 1 or re.search(rb"(?i)\r\ntransfer-encoding|\r[^\n]|\0", head):
                    self.faults.append(head)
                size = int(lengths[0]) if lengths else 0
                while len(rest) < size:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    rest += piece
                rest = rest[size:]
                connection.sendall(self.answer[: self.cut])
                connection.sendall(self.answer[self.cut :])
                if not self.keeps:
                    return


class Answers:
    """Reads a client's bytes as a strict client would; `ids` are those of the answers."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        # chunk extensions pass as the replica wrote them; a strict client may refuse them
        with contextlib.suppress(httptools.HttpParserError):
            self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._own: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._own.append(value)

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self.ids.append(b",".join(self._own))


class Rig:
    """A data plane before one replica, and what holds whatever happened."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.engine = Engine()
        times = {"client_header_s": 2, "client_body_s": 2, "first_byte_s": 2, "idle_s": 2}
        self.gateway = Gateway([self.engine], {"timeouts": times})
        self.count = 0

    def close(self) -> None:
        self.gateway.close()
        self.engine.stop()

    def exchange(self, data: bytes, patience_s: float = 0.03) -> bytes:
        """Send bytes in two pieces; what comes back until silence or the end."""
        seen = b""
        cut = self.chance.randint(0, len(data))
        with self.gateway.connect() as client, contextlib.suppress(OSError):
            client.settimeout(patience_s)
            client.sendall(data[:cut])
            client.sendall(data[cut:])
            while piece := client.recv(65536):
                seen += piece
        return seen

    def step(self) -> None:
        """One exchange in which either the request or the answer is mutated."""
        self.count += 1
        chance, engine = self.chance, self.engine
        engine.answer = chance.choice(ANSWERS)
        engine.keeps = chance.random() < 0.7
        if chance.random() < 0.5:
            engine.cut = 0
            self.exchange(mutate(chance, chance.choice(REQUESTS), REQUESTS))
        else:
            engine.answer = mutate(chance, engine.answer, ANSWERS)
            engine.cut = chance.randint(0, len(engine.answer))
            self._asked_well()

    def _asked_well(self) -> None:
        """Two good requests; the answers are to them, however the replica's looks."""
        ids = [b"a%d" % self.count, b"b%d" % self.count]
        body = self.chance.choice((BODY, STREAM_BODY))
        first = post(body, b"x-request-id: %s\r\n" % ids[0])
        second = b"GET /health HTTP/1.1\r\nHost: g\r\nx-request-id: %s\r\n\r\n" % ids[1]
        seen = Answers()
        text = self.exchange(first + second)
        seen.feed(text)
        assert seen.ids == ids[: len(seen.ids)], (self.engine.answer, text)

    def check(self) -> None:
        """What has to hold after any number of steps."""
        engine, gateway = self.engine, self.gateway
        eventually(lambda: gateway.in_flight() == (0, 0, 0, 0), 10)
        engine.answer, engine.cut, engine.keeps = ANSWERS[0], 0, True
        good = self.exchange(post(BODY, b"Connection: close\r\n"), 5)
        assert good.startswith(b"HTTP/1.1 200 OK\r\n") and good.endswith(PLAIN), good
        assert engine.faults == [], engine.faults[0]
        sent = gateway.segment.cell(0)["sent"]
        assert len(engine.requests) <= sent, (len(engine.requests), sent)
        assert not [head for head in engine.requests if head.startswith(SMUGGLED[:13])]


def run(seconds: float, seed: int, least: int = 0) -> int:
    """Fuzz for so long, or for `least` steps; returns the number of steps."""
    rig = Rig(seed)
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or rig.count < least:
            rig.step()
            if rig.count % 500 == 0:
                rig.check()
        rig.check()
    finally:
        rig.close()
    return rig.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(json.dumps({"exchanges": run(args.seconds, args.seed)}))


if __name__ == "__main__":
    main()
