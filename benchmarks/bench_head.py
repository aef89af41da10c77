"""Cost of reading and rewriting a head, from Python: an OpenAI client's request, vLLM's answer.

Run: python -m pytest benchmarks/bench_head.py --benchmark-enable
"""

from headrace.proxy.inspect import rewrite_request, rewrite_response

REQUEST = b"""POST /v1/chat/completions HTTP/1.1
Host: gateway.example:30000
Accept-Encoding: gzip, deflate
Connection: keep-alive
Accept: application/json
Content-Type: application/json
User-Agent: OpenAI/Python 2.8.1
X-Stainless-Lang: python
X-Stainless-Package-Version: 2.8.1
X-Stainless-OS: Linux
X-Stainless-Arch: x64
X-Stainless-Runtime: CPython
X-Stainless-Runtime-Version: 3.11.7
Authorization: Bearer sk-0123456789abcdef0123456789abcdef
X-Stainless-Async: false
x-stainless-retry-count: 0
x-stainless-read-timeout: 600
Content-Length: 1024

""".replace(b"\n", b"\r\n")
RESPONSE = b"""HTTP/1.1 200 OK
date: Mon, 30 Nov 2026 12:00:00 GMT
server: uvicorn
content-type: text/event-stream; charset=utf-8
x-request-id: 0123456789abcdef
transfer-encoding: chunked

""".replace(b"\n", b"\r\n")


def test_rewrite_request_head(benchmark):
    seen = benchmark(rewrite_request, REQUEST)
    assert seen.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nhost: replica:8000\r\n")
    assert b"Connection" not in seen and seen.endswith(b"\r\ncontent-length: 1024\r\n\r\n")
    benchmark.extra_info["bytes"] = len(REQUEST)


def test_rewrite_response_head(benchmark):
    seen = benchmark(rewrite_response, RESPONSE)
    assert seen.endswith(b"charset=utf-8\r\ntransfer-encoding: chunked\r\n")
    benchmark.extra_info["bytes"] = len(RESPONSE)
