"""Rates of the body scanner, as seen from Python.

    python -m pytest benchmarks/bench_scan.py --benchmark-enable

`validate` holds the text in a field that nothing reads, so that it is only checked; `count` is a
chat as clients send it; `hash` adds the prefix keys. Bytes a second stand under extra_info.
"""

import json

import pytest

from headrace.core.scan import BodyScan

SIZES = {"1KB": 1_000, "16KB": 16_000, "1MB": 1_000_000}
TEXTS = {
    "english": "The quick brown fox jumps over 13 lazy dogs, and then (quietly) goes home. ",
    "code": '    for i in range(10):\n        print("x = %d" % i)\n\n',
    "chinese": "北京是中国的首都，",
}


def chat_body(text: str, size_bytes: int) -> bytes:
    def make(content: str) -> bytes:
        messages = [{"role": "user", "content": content}]
        return json.dumps(
            {"model": "llama-3-8b", "stream": True, "max_tokens": 128, "messages": messages},
            ensure_ascii=False,
        ).encode()

    one = len(make(text)) - len(make(""))
    return make(text * max(1, (size_bytes - len(make(""))) // one))


def record(benchmark, body: bytes) -> None:
    if benchmark.stats:
        seconds = benchmark.stats.stats.median
        benchmark.extra_info["body_bytes"] = len(body)
        benchmark.extra_info["gigabytes_per_s"] = round(len(body) / seconds / 1e9, 3)


@pytest.mark.parametrize("size", SIZES)
def test_validate(benchmark, size):
    body = b'{"model":"m","unread":"%b"}' % (b"plain text " * (SIZES[size] // 11))
    benchmark(BodyScan, body)
    record(benchmark, body)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", SIZES)
def test_count(benchmark, size, text):
    body = chat_body(TEXTS[text], SIZES[size])
    benchmark(BodyScan, body)
    record(benchmark, body)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", SIZES)
def test_hash(benchmark, size, text):
    body = chat_body(TEXTS[text], SIZES[size])
    benchmark(lambda: BodyScan(body).prefix_keys())
    record(benchmark, body)
