"""A light HTTP/1.1 server side: httptools in front, one `Reply` per request behind.

Answers look like those of uvicorn, which vLLM runs on: lower-case header names, `vary: Origin`,
one SSE event a chunk, idle connections closed after 5 s.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import httptools

KEEP_ALIVE_S = 5.0
MAX_BODY_BYTES = 64 << 20
PHRASES = {status.value: status.phrase for status in HTTPStatus}

Headers = dict[str, str]


class Request:
    """One complete request; `path` has no query, `headers` are by lower-case name."""

    __slots__ = ("body", "headers", "http10", "keep_alive", "method", "path")

    def __init__(self, method: str, path: str, headers: Headers, http10: bool) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = b""
        self.http10 = http10
        self.keep_alive = True


Handler = Callable[[Request, "Reply"], None]


class Clock:
    """The `date` header, formatted once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def line(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = f"date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._line


CLOCK = Clock()


class Reply:
    """The answer to one request: either `send`, or `start_stream`, `event`… and `end`.

    `on_gone` is called once if the client leaves before the answer is complete. Writing after that
    does nothing.
    """

    __slots__ = ("_chunked", "_protocol", "_request", "complete", "on_gone", "started")

    def __init__(self, protocol: HttpProtocol, request: Request) -> None:
        self._protocol = protocol
        self._request = request
        self._chunked = not request.http10
        self.started = False
        self.complete = False
        self.on_gone: Callable[[], None] | None = None

    def send(
        self,
        status: int,
        body: bytes = b"",
        headers: Headers | None = None,
        content_type: str = "application/json",
        vary: bool = True,
        close: bool = False,
    ) -> None:
        """Send a whole answer; `close` also ends the connection, without announcing it unless the
        caller put `connection` in `headers`."""
        if self.complete:
            return
        lines = {"content-length": str(len(body))}
        if body:
            lines["content-type"] = content_type
        self._write_head(status, lines, headers, vary)
        if body and self._request.method != "HEAD":
            self._protocol.write(body)
        self._finish(close)

    def start_stream(self, headers: Headers | None = None) -> None:
        lines = {"content-type": "text/event-stream; charset=utf-8"}
        if self._chunked:
            headers = {**(headers or {}), "transfer-encoding": "chunked"}
        self._write_head(200, lines, headers, True)

    def event(self, data: bytes) -> None:
        """Send some complete SSE events as one chunk."""
        if self.complete:
            return
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._protocol.write(data)

    def end(self) -> None:
        if self.complete:
            return
        if self._chunked:
            self._protocol.write(b"0\r\n\r\n")
        self._finish(close=not self._chunked)

    def spare(self) -> None:
        """Keep the connection while this request is open, even if its replica crashes."""
        self._protocol.spared = True

    def gone(self) -> None:
        """The client left: stop writing and tell the producer."""
        if self.complete:
            return
        self.complete = True
        if self.on_gone is not None:
            self.on_gone()

    def _write_head(self, status: int, lines: Headers, extra: Headers | None, vary: bool) -> None:
        self.started = True
        head = [f"HTTP/1.1 {status} {PHRASES[status]}\r\n".encode(), CLOCK.line()]
        head.append(b"server: uvicorn\r\n")
        if vary:
            lines["vary"] = "Origin"
        if extra:
            lines.update(extra)
        head += [f"{name}: {value}\r\n".encode("latin-1") for name, value in lines.items()]
        head.append(b"\r\n")
        self._protocol.write(b"".join(head))

    def _finish(self, close: bool) -> None:
        self.complete = True
        self._protocol.answered(close or not self._request.keep_alive)


class HttpProtocol(asyncio.Protocol):
    """One client connection; pipelined requests are answered in order."""

    def __init__(self, handler: Handler, connections: set[HttpProtocol]) -> None:
        self._handler = handler
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._reply: Reply | None = None
        self.spared = False
        self._retired = False
        self._idle: asyncio.TimerHandle | None = None
        self._reset_message()

    def _reset_message(self) -> None:
        self._url = b""
        self._headers: Headers = {}
        self._body: list[bytes] = []
        self._body_bytes = 0

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        self._waiting.clear()
        if self._idle is not None:
            self._idle.cancel()
        if self._reply is not None:
            self._reply.gone()

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.close()
        except httptools.HttpParserError:
            self._refuse_garbage()

    # httptools' side

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            self.close()
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        request = Request(
            self._parser.get_method().decode("latin-1"),
            self._url.split(b"?", 1)[0].decode("latin-1"),
            self._headers,
            self._parser.get_http_version() == "1.0",
        )
        request.body = b"".join(self._body)
        request.keep_alive = self._parser.should_keep_alive()
        self._reset_message()
        self._waiting.append(request)
        if self._reply is None:
            self._next()

    # the reply's side

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def retire(self) -> None:
        """Close now if nothing is being answered, else after the current answer."""
        self._retired = True
        if self._reply is None:
            self.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def answered(self, close: bool) -> None:
        """The current reply is complete: go on with the next request, or close."""
        self._reply = None
        self.spared = False
        if close or self._retired:
            self._waiting.clear()
            self.close()
        elif self._waiting:
            self._loop.call_soon(self._next)
        elif self._transport is not None:
            self._idle = self._loop.call_later(KEEP_ALIVE_S, self._close_idle)

    def _next(self) -> None:
        if self._reply is not None or not self._waiting:
            return
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        request = self._waiting.popleft()
        self._reply = Reply(self, request)
        self._handler(request, self._reply)

    def _close_idle(self) -> None:
        if self._reply is None and not self._waiting and not self._url and not self._body:
            self.close()

    def _refuse_garbage(self) -> None:
        if self._reply is None:
            body = b"Invalid HTTP request received."
            self.write(
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
                b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
            )
        self.close()
