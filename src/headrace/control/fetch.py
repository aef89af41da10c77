"""Fetches from somebody we do not trust to answer well: bounded in time and size.

What goes wrong is one of a few kinds, because callers judge by the kind and never by a message.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from enum import Enum

import aiohttp


class Trouble(Enum):
    """Why there is no page."""

    REFUSED = "connection refused"
    TIMEOUT = "no answer in time"
    STATUS = "status"
    TOO_LARGE = "too large"
    BROKEN = "broken answer"


class FetchError(Exception):
    """No page; `status` is 0 unless there was one, `body` the beginning of an error's body."""

    def __init__(self, trouble: Trouble, detail: str, status: int = 0, body: bytes = b"") -> None:
        super().__init__(detail)
        self.trouble = trouble
        self.detail = detail
        self.status = status
        self.body = body


ERROR_BODY_BYTES = 4096


def tls_detail(error: aiohttp.ClientSSLError) -> str:
    """What is wrong with a handshake, in OpenSSL's words."""
    cause = getattr(error, "certificate_error", None) or error.os_error
    said = getattr(cause, "verify_message", None) or getattr(cause, "reason", None)
    return f"TLS: {said or cause}"


class Fetcher:
    """An HTTP client in which no target waits for another.

    Connections are kept shorter than the 5 s after which vLLM closes its end.
    """

    def __init__(self, keepalive_s: float = 4.0) -> None:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=keepalive_s)
        self.tls: ssl.SSLContext | None = None  # for https; without it the system's CAs
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"accept-encoding": "identity"},
            skip_auto_headers=["user-agent"],
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def get(
        self, url: str, timeout_s: float, limit_bytes: int, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return the body of a 200; raises FetchError for everything else."""
        return await self._request("GET", url, timeout_s, limit_bytes, headers, None)

    async def post(
        self,
        url: str,
        body: bytes,
        timeout_s: float,
        limit_bytes: int,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send JSON and return the body of a 200; raises FetchError for everything else."""
        sent = {"content-type": "application/json", **(headers or {})}
        return await self._request("POST", url, timeout_s, limit_bytes, sent, body)

    async def _request(
        self,
        method: str,
        url: str,
        timeout_s: float,
        limit_bytes: int,
        headers: Mapping[str, str] | None,
        body: bytes | None,
    ) -> bytes:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    ssl=self.tls or True,
                ) as answer,
            ):
                if answer.status != 200:
                    start = await self._read_start(answer, ERROR_BODY_BYTES)
                    raise FetchError(
                        Trouble.STATUS, f"status {answer.status}", answer.status, start
                    )
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise FetchError(Trouble.BROKEN, "compressed, though nobody asked")
                return await self._read_whole(answer, limit_bytes)
        except TimeoutError:
            raise FetchError(Trouble.TIMEOUT, f"no answer in {timeout_s:g} s") from None
        except aiohttp.ClientSSLError as error:
            raise FetchError(Trouble.BROKEN, tls_detail(error)) from None
        except aiohttp.ClientConnectorError as error:
            raise FetchError(Trouble.REFUSED, f"cannot connect: {error.os_error}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise FetchError(Trouble.BROKEN, type(error).__name__) from None

    @staticmethod
    async def _read_whole(answer: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
        parts = []
        size = 0
        async for part in answer.content.iter_any():
            size += len(part)
            if size > limit_bytes:
                answer.close()
                raise FetchError(Trouble.TOO_LARGE, f"more than {limit_bytes} bytes")
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @staticmethod
    async def _read_start(answer: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
        start = b""
        async for part in answer.content.iter_any():
            start += part
            if len(start) >= limit_bytes:
                answer.close()
                break
        return start[:limit_bytes]
