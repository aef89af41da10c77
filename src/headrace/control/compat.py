"""The registration calls of other routers, for scripts that use them: /workers and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aiohttp import web

from headrace.config import normalize, replica_id
from headrace.control.admin_replicas import (
    CONTROL,
    ID,
    admit,
    answer_for,
    describe,
    read_object,
    take_out,
)
from headrace.errors import ClientError, NotFound

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member


def add_routes(router: web.UrlDispatcher) -> None:
    """The compatibility calls."""
    router.add_get("/workers", list_workers)
    router.add_post("/workers", post_worker)
    router.add_get(f"/workers/{ID}", get_worker)
    router.add_delete(f"/workers/{ID}", delete_worker)
    router.add_get("/list_workers", list_urls)
    router.add_post("/add_worker", add_worker)
    router.add_post("/remove_worker", remove_worker)


def as_worker(control: Control, member: Member) -> dict[str, Any]:
    """An entry in the words of those routers, beside our own."""
    entry = describe(control, member)
    models = entry["models"]
    return {
        **entry,
        "model_id": models[0] if models else None,
        "is_healthy": member.takes_traffic,
        "load": entry["inflight"],
        "worker_type": "regular",
    }


async def list_workers(request: web.Request) -> web.Response:
    """All replicas."""
    control = request.app[CONTROL]
    workers = [as_worker(control, member) for member in control.registry.members.values()]
    return web.json_response({"workers": workers, "total": len(workers)})


async def list_urls(request: web.Request) -> web.Response:
    """All URLs."""
    members = request.app[CONTROL].registry.members.values()
    return web.json_response({"urls": [member.url for member in members]})


async def post_worker(request: web.Request) -> web.Response:
    """Register one; of the fields, `url`, `model_id`, `api_key` and `labels` are used."""
    asked = await read_object(request)
    entry = {name: asked[name] for name in ("url", "api_key", "labels") if asked.get(name)}
    if asked.get("model_id"):
        entry["models"] = [asked["model_id"]]
    return answer_for(request, await admit(request.app[CONTROL], entry), status=202)


async def get_worker(request: web.Request) -> web.Response:
    """One replica, by id or URL."""
    control = request.app[CONTROL]
    return web.json_response(as_worker(control, find(control, request.match_info["id"])))


async def delete_worker(request: web.Request) -> web.Response:
    """Drain and remove one, by id or URL."""
    control = request.app[CONTROL]
    member = find(control, request.match_info["id"])
    take_out(control, member, is_now=False)
    return web.json_response({"status": "accepted", "worker_id": member.id}, status=202)


async def add_worker(request: web.Request) -> web.Response:
    """Register a URL."""
    replica = await admit(request.app[CONTROL], {"url": wanted_url(request)})
    return web.Response(text=f"added {replica.url}\n")


async def remove_worker(request: web.Request) -> web.Response:
    """Drain and remove a URL."""
    control = request.app[CONTROL]
    member = find(control, wanted_url(request))
    take_out(control, member, is_now=False)
    return web.Response(text=f"removing {member.url}\n")


def wanted_url(request: web.Request) -> str:
    """The query's `url`; raises ClientError without one."""
    url = request.query.get("url", "")
    if not url:
        raise ClientError("url: missing in the query", param="url")
    return url


def find(control: Control, name: str) -> Member:
    """The replica with an id or URL; raises NotFound."""
    name = unquote(name)
    if "://" in name:
        try:
            name = replica_id(normalize(name))
        except ValueError as error:
            raise ClientError(f"url: {error}", param="url") from None
    member = control.registry.members.get(name)
    if member is None:
        raise NotFound(f"no replica {name[:200]!r}")
    return member
