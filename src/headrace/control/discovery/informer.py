"""List and watch of one kind of Kubernetes object, in the way that survives a flapping API server.

Every time the watch ends, for whatever reason, everything is listed again: a deletion that was
missed while nobody watched cannot survive the next connection. Objects stay as they were last seen
until a new list is there.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp
import orjson

from headrace.config.checks import one_line
from headrace.control.discovery import shapes

log = logging.getLogger("headrace.discovery")

PAGE = 500  # objects a list request
WATCH_S = 240  # the server ends a watch then
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.2, 30.0
CONNECT_S, LIST_S = 10.0, 60.0  # of a page
# A server sends a bookmark each minute. Their version is of no use to one that lists anew after
# every watch, but silence beyond them tells that the connection is dead.
SILENCE_S = 90.0
MAX_EVENT_BYTES = 16 << 20
ROLE = "deploy/kubernetes/base/rbac.yaml"
MAX_PAGE_BYTES = 128 << 20
MAX_PAGES = 400  # 200,000 objects; a server whose pages never end is given up on
MAX_ERROR_BYTES, MAX_MESSAGE_CHARS = 8192, 400
MALFORMED = (ValueError, LookupError, TypeError, AttributeError)  # what is not of the API's types
VERBS = {True: "watch", False: "list"}

Call = Callable[..., Awaitable[Any]]  # an API function that gives an aiohttp response


class Refused(Exception):
    """The API server answered with an error; says which verb on which resource, and what file
    has the role that grants it.
    """

    def __init__(
        self, status: int, verb: str, resource: str, message: str, role: str = ROLE
    ) -> None:
        hint = ""
        if status in (401, 403):
            hint = f"; grant the verb {verb} on {resource} ({role})"
        super().__init__(f"may not {verb} {resource}: {status} {message}{hint}")
        self.status = status


class Kind(NamedTuple):
    """What to follow: its name in RBAC and its shape, the API function and that one's arguments."""

    resource: str
    shape: type
    call: Call
    arguments: dict[str, Any]


class Informer:
    """Keeps `objects` (by namespace and name) like the API server's; tells of every change."""

    def __init__(self, kind: Kind, on_change: Callable[[], None]) -> None:
        self.kind = kind
        self.on_change = on_change
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.listed = False  # the first list has come

    async def run(self) -> None:
        """Follow until cancelled."""
        pause_s = BACKOFF_FIRST_S
        while True:
            try:
                version = await self._list()
                pause_s = BACKOFF_FIRST_S
                await self._watch(version)
            except Refused as error:
                log.warning("%s", error)
            except (aiohttp.ClientError, OSError, *MALFORMED) as error:
                log.warning(
                    "%s: %s; what was seen last stays in force",
                    self.kind.resource,
                    error or type(error).__name__,
                )
            # Also after an ordinary end or a 410: one that comes at once, every time, would spin.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(pause_s * 2, BACKOFF_MAX_S)

    async def _ask(self, timeout: aiohttp.ClientTimeout, **more: Any) -> Any:
        verb = VERBS["watch" in more]
        answer = await self.kind.call(
            **self.kind.arguments, **more, _preload_content=False, _request_timeout=timeout
        )
        if answer.status >= 400:
            text = await answer.content.read(MAX_ERROR_BYTES)
            answer.close()
            raise Refused(answer.status, verb, self.kind.resource, message_of(text))
        return answer

    async def _list(self) -> str:
        """Everything, page by page; the resource version to watch from."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        more: dict[str, Any] = {"limit": PAGE}
        for _ in range(MAX_PAGES):
            page = await self._page(more)
            for entry in page.get("items") or []:
                self._put(found, entry)
            meta = page["metadata"]
            if not meta.get("continue"):
                self.objects, self.listed = found, True
                self.on_change()
                return str(meta["resourceVersion"])
            more["_continue"] = meta["continue"]
        raise ValueError(f"a list of more than {MAX_PAGES} pages")

    async def _page(self, more: dict[str, Any]) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=LIST_S, sock_connect=CONNECT_S)
        answer = await self._ask(timeout, **more)
        try:
            text = bytearray()
            async for chunk in answer.content.iter_any():
                text += chunk
                if len(text) > MAX_PAGE_BYTES:
                    raise ValueError(f"a page of more than {MAX_PAGE_BYTES} bytes")
        finally:
            answer.close()
        page = orjson.loads(text)
        if not isinstance(page, dict) or not isinstance(page.get("metadata"), dict):
            raise ValueError("the answer is no list")
        return page

    def _put(self, objects: dict[tuple[str, str], dict[str, Any]], entry: Any) -> None:
        """Keep an object by its name; one that is not of the API's shape is logged and left out."""
        wrong = shapes.complaint(entry, self.kind.shape)
        if wrong:
            log.warning("%s: left out: %s: %.200r", self.kind.resource, wrong, entry)
        else:
            objects[_key(entry)] = entry

    async def _watch(self, version: str) -> None:
        answer = await self._ask(
            aiohttp.ClientTimeout(
                total=WATCH_S + LIST_S, sock_connect=CONNECT_S, sock_read=SILENCE_S
            ),
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=WATCH_S,
        )
        try:
            async for line in _lines(answer.content):
                self._apply(orjson.loads(line))
        finally:
            answer.close()

    def _apply(self, event: dict[str, Any]) -> None:
        kind, entry = event["type"], event["object"]
        if kind == "ERROR":
            code, message = entry.get("code", 500), str(entry.get("message", ""))
            raise Refused(int(code), "watch", self.kind.resource, message[:MAX_MESSAGE_CHARS])
        if kind == "BOOKMARK":
            return
        if kind == "DELETED":
            self.objects.pop(_key(entry), None)
        else:
            self._put(self.objects, entry)
        self.on_change()


def message_of(body: bytes) -> str:
    """What an error says: the message of a Status object, or else the start of the body."""
    text = body.decode(errors="replace")
    try:
        text = str(orjson.loads(body)["message"])
    except MALFORMED:
        pass
    return one_line(text[:MAX_MESSAGE_CHARS])


def _key(entry: dict[str, Any]) -> tuple[str, str]:
    meta = entry["metadata"]
    return str(meta.get("namespace", "")), str(meta["name"])


async def _lines(content: Any) -> AsyncIterator[bytes]:
    """The lines of a body, each of any length up to MAX_EVENT_BYTES."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > MAX_EVENT_BYTES:
            raise ValueError(f"a watch event of more than {MAX_EVENT_BYTES} bytes")
