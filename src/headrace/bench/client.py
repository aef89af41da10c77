"""Sends one chat completion and notes when its tokens come."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping

import aiohttp
import orjson

from headrace.bench.events import Events, error_name
from headrace.bench.samples import Record, Sample

REPLICA_HEADER = "x-headrace-replica"
SESSION_HEADER = "x-session-id"


class Client:
    """HTTP to one OpenAI-compatible server: one pooled session, no limit on connections.

    Args:
        url: of the server, with or without its `/v1`.
        now_s: the run's clock.
        timeout_s: for a whole request; it then counts as error `timeout`.
    """

    def __init__(
        self,
        url: str,
        record: Record,
        now_s: Callable[[], float],
        *,
        api_key: str | None,
        timeout_s: float,
    ) -> None:
        base = url.rstrip("/")
        self.url = (base if base.endswith("/v1") else base + "/v1") + "/chat/completions"
        self._record = record
        self._now_s = now_s
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={"content-type": "application/json", **headers},
            skip_auto_headers=["user-agent"],
        )

    async def close(self) -> None:
        await self._session.close()

    async def send(
        self, body: bytes, *, due_s: float, prompt_tokens: int, session: str | None = None
    ) -> Sample:
        """Send a body and read its answer to the end. Never raises for what the server does."""
        headers = {SESSION_HEADER: session} if session else None
        sample = Sample(due_s, self._now_s(), prompt_tokens)
        self._record.start(sample.sent_s)
        try:
            async with self._session.post(self.url, data=body, headers=headers) as response:
                sample.replica = response.headers.get(REPLICA_HEADER)
                if response.status == 200:
                    await self._read_stream(response, sample)
                else:
                    await response.read()
                    sample.error = f"status_{response.status}"
        except Exception as error:
            # the edge of a request: whatever went wrong is a result of the measurement
            sample.error = error_kind(error)
        except asyncio.CancelledError:
            sample.error = "cancelled"
            raise
        finally:
            sample.end_s = self._now_s()
            self._record.finish(sample, sample.end_s)
        return sample

    async def _read_stream(self, response: aiohttp.ClientResponse, sample: Sample) -> None:
        if not response.content_type.startswith("text/event-stream"):
            sample.error = plain_error(await response.read())
            return
        events = Events()
        async for data in response.content.iter_any():
            if contents := events.feed(data):
                self._note_tokens(sample, contents)
        if events.completion_tokens is not None:
            sample.output_tokens = events.completion_tokens
        sample.prompt_tokens = events.prompt_tokens or sample.prompt_tokens
        sample.cached_tokens = events.cached_tokens
        if events.error is not None:
            sample.error = f"error_{events.error}"
        elif not events.complete:
            sample.error = "incomplete"

    def _note_tokens(self, sample: Sample, contents: int) -> None:
        """Content events that came in one read: the first one waited, the others did not."""
        now_s = self._now_s()
        gaps = contents
        if sample.last_token_s is None:
            sample.first_token_s = now_s
            self._record.first_token(now_s)
            gaps -= 1
        else:
            self._record.itl_s.append(now_s - sample.last_token_s)
            gaps -= 1
        self._record.itl_s.extend([0.0] * gaps)
        sample.last_token_s = now_s
        sample.output_tokens += contents


def error_kind(error: BaseException) -> str:
    """A short name for what went wrong on the way."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "client_files" if error.errno == errno.EMFILE else "connect"
    if isinstance(error, (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, OSError)):
        return "cut"
    return type(error).__name__.lower()


def plain_error(body: bytes) -> str:
    """The kind of a 200 that is no event stream."""
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "no_stream"
    if isinstance(document, Mapping) and "error" in document:
        return f"error_{error_name(document['error'])}"
    return "no_stream"
