"""The admin calls about replicas: list, register, drain, undrain, remove."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from headrace.config import ReplicaConfig, parse_replicas
from headrace.control import guard, membership
from headrace.control.states import Cause
from headrace.errors import ClientError, InvalidJson, NotFound

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

CONTROL: web.AppKey[Control] = web.AppKey("control")
ID = "{id:.+}"  # host:port, and a path if the replica has one


def add_routes(router: web.UrlDispatcher) -> None:
    """The calls under /replicas."""
    router.add_get("/replicas", list_replicas)
    router.add_post("/replicas", register)
    router.add_post(f"/replicas/{ID}/drain", drain)
    router.add_post(f"/replicas/{ID}/undrain", undrain)
    router.add_delete(f"/replicas/{ID}", remove)


def describe(control: Control, member: Member) -> dict[str, Any]:
    """The entry of a replica in GET /replicas; unknown figures are null."""
    row = control.segment.row(member.slot) or {}
    waiting, running = row.get("waiting", -1), row.get("running", -1)
    return {
        "id": member.id,
        "url": member.url,
        "models": sorted(member.cards),
        "state": member.state,
        "reason": member.reason,
        "since": member.since,
        "inflight": control.segment.requests(member.slot),
        "running": running if running >= 0 else None,
        "queue_depth": waiting if waiting >= 0 else None,
        "weight": row.get("weight"),
        "ramp": row.get("ramp"),
        "generation": member.generation,
        "labels": dict(member.config.labels),
        "sources": control.sources.wanted.sources_of(member.id),
        "scrape_error": member.engine.trouble or None,
        "kv_events": member.kv_events,
    }


async def list_replicas(request: web.Request) -> web.Response:
    """Every replica with its state."""
    control = request.app[CONTROL]
    entries = [describe(control, member) for member in control.registry.members.values()]
    return web.json_response({"replicas": entries})


async def register(request: web.Request) -> web.Response:
    """Add a replica: an entry as in the configuration. A known URL gets the new settings."""
    entry = await read_object(request)
    replica = await admit(request.app[CONTROL], entry)
    return answer_for(request, replica, status=201)


async def admit(control: Control, entry: dict[str, Any]) -> ReplicaConfig:
    """Check an entry and put it into force; raises ClientError or ConfigError."""
    (replica,) = parse_replicas([entry])
    networks = control.config.auth.replica_networks
    await guard.check_urls([replica.url, replica.metrics_url, replica.dcgm_url], networks)
    control.sources.wanted.add(replica)
    membership.apply(control)
    return replica


def answer_for(request: web.Request, replica: ReplicaConfig, status: int = 200) -> web.Response:
    """The entry of a replica that has just been changed."""
    control = request.app[CONTROL]
    member = control.registry.members.get(replica.id)
    if member is None:
        raise ClientError(f"no room for {replica.id}: all slots are taken")
    return web.json_response(describe(control, member), status=status)


async def drain(request: web.Request) -> web.Response:
    """No new requests there; it stays out until undrain."""
    control, member = find(request)
    timeout_s = control.config.server.drain_timeout_s
    member.health.drain(Cause.ADMIN, "drained by an operator", time.monotonic_ns(), timeout_s)
    control.refresh(member)
    return web.json_response(describe(control, member))


async def undrain(request: web.Request) -> web.Response:
    """Back into rotation, whatever drained it."""
    control, member = find(request)
    member.health.undrain(time.monotonic_ns())
    view = member.health.view(time.monotonic_ns())
    control.refresh(member, view)
    control.look_after(member, view)
    return web.json_response(describe(control, member))


async def remove(request: web.Request) -> web.Response:
    """Take a replica out: `mode=drain` (default) lets its requests end, `mode=now` cuts them."""
    control, member = find(request)
    mode = request.query.get("mode", "drain")
    if mode not in ("drain", "now"):
        raise ClientError(f"mode: wanted drain or now, got {mode[:50]!r}", param="mode")
    take_out(control, member, is_now=mode == "now")
    return web.json_response({"id": member.id, "mode": mode}, status=202)


def take_out(control: Control, member: Member, *, is_now: bool) -> None:
    """Strike a replica from the wanted list, and forget it at once or when it has drained."""
    control.sources.wanted.strike(member.id)
    if is_now:
        control.forget(member, cut=True)
    else:
        membership.apply(control)


def find(request: web.Request) -> tuple[Control, Member]:
    """The replica that the path names; raises NotFound."""
    control = request.app[CONTROL]
    name = request.match_info["id"]
    member = control.registry.members.get(name)
    if member is None:
        raise NotFound(f"no replica {name[:200]!r}")
    return control, member


async def read_object(request: web.Request) -> dict[str, Any]:
    """The JSON object that is the body; raises InvalidJson."""
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"body: {error}") from None
    if not isinstance(body, dict):
        raise InvalidJson("body: a JSON object is wanted")
    return body
