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

log = logging.getLogger("headrace.discovery")

PAGE = 500  # objects a list request
WATCH_S = 240  # the server ends a watch then
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.2, 30.0
MAX_EVENT_BYTES = 16 << 20
ROLE = "deploy/kubernetes/base/rbac.yaml"
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
    """What to follow: the API function, its name in RBAC, and its arguments."""

    resource: str
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
            except (aiohttp.ClientError, OSError, ValueError, KeyError) as error:
                log.warning("%s: %s; what was seen last stays in force", self.kind.resource, error)
            # Also after an ordinary end or a 410: one that comes at once, every time, would spin.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(pause_s * 2, BACKOFF_MAX_S)

    async def _ask(self, **more: Any) -> Any:
        verb = VERBS["watch" in more]
        answer = await self.kind.call(**self.kind.arguments, **more, _preload_content=False)
        if answer.status >= 400:
            text = (await answer.content.read(2000)).decode(errors="replace")
            answer.close()
            raise Refused(answer.status, verb, self.kind.resource, text[:200])
        return answer

    async def _list(self) -> str:
        """Everything, page by page; the resource version to watch from."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        more: dict[str, Any] = {"limit": PAGE}
        while True:
            answer = await self._ask(**more)
            page = orjson.loads(await answer.read())
            for entry in page.get("items") or []:
                found[_key(entry)] = entry
            token = page["metadata"].get("continue")
            if not token:
                break
            more["_continue"] = token
        self.objects, self.listed = found, True
        self.on_change()
        return str(page["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        answer = await self._ask(
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
        entry = event["object"]
        if event["type"] == "ERROR":
            message = str(entry.get("message", ""))
            raise Refused(int(entry.get("code", 500)), "watch", self.kind.resource, message)
        if event["type"] == "BOOKMARK":
            return
        if event["type"] == "DELETED":
            self.objects.pop(_key(entry), None)
        else:
            self.objects[_key(entry)] = entry
        self.on_change()


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
