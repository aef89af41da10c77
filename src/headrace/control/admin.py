"""The admin port: its routes, and what holds for every call."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from headrace import config as configuration
from headrace.control import admin_replicas, compat, explain, guard
from headrace.control.admin_replicas import CONTROL
from headrace.errors import ConfigError, HeadraceError, MethodNotAllowed, NotFound, Unauthorized
from headrace.observe import dashboard

if TYPE_CHECKING:
    from headrace.control.loop import Control

log = logging.getLogger("headrace.admin")

BACKLOG = 128
MAX_BODY_BYTES = 16 << 20
CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
OPEN_PATHS = frozenset({"/health"})  # says no more than that control lives

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets of the admin port, one for each address of the host.

    Raises ConfigError when it cannot be had.
    """
    listeners: list[socket.socket] = []
    try:
        for family, kind, proto, _, address in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listener = socket.socket(family, kind, proto)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise ConfigError(
            f"server.admin_port: cannot listen on {host}:{port}: {error.strerror}"
        ) from error
    return listeners


async def start(control: Control, listeners: Sequence[socket.socket]) -> web.AppRunner:
    """Answer on the listeners of the admin port."""
    app = web.Application(middlewares=[answer_errors, check_caller], client_max_size=MAX_BODY_BYTES)
    app[CONTROL] = control
    add_routes(app.router)
    admin_replicas.add_routes(app.router)
    compat.add_routes(app.router)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    for listener in listeners:
        await web.SockSite(runner, listener).start()
    return runner


def add_routes(router: web.UrlDispatcher) -> None:
    """What is about the gateway as a whole."""
    router.add_get("/health", health)
    router.add_get("/metrics", metrics)
    router.add_get("/dashboard", dashboard.serve_page)
    router.add_get("/dashboard/data", dashboard_data)
    router.add_get("/autoscale", show_autoscale)
    router.add_get("/config", show_config)
    router.add_post("/reload", reload)
    router.add_post("/explain", explain.answer)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give every answer a request id, and every error the shape of the data port's."""
    request_id = request.headers.get("x-request-id") or uuid.uuid4().hex
    try:
        answer = await handler(request)
    except HeadraceError as error:
        answer = error_answer(error)
    except web.HTTPNotFound:
        answer = error_answer(NotFound(f"no such path: {request.path[:200]}"))
    except web.HTTPMethodNotAllowed as error:
        wrong = MethodNotAllowed(
            f"{request.method} is not for this path", sorted(error.allowed_methods)
        )
        answer = error_answer(wrong)
    except web.HTTPException:
        raise
    except Exception:
        request.app[CONTROL].tally.errors["admin"] += 1
        log.exception("admin call failed: %s %r", request.method, request.path[:200])
        answer = error_answer(HeadraceError("internal error"))
    if request_id.isascii() and request_id.isprintable():
        answer.headers["x-request-id"] = request_id
    return answer


def error_answer(error: HeadraceError) -> web.Response:
    """The answer that an error is."""
    answer = web.json_response(error.body(), status=error.status)
    answer.headers["x-headrace-error"] = error.code
    if isinstance(error, Unauthorized):
        answer.headers["www-authenticate"] = 'Basic realm="headrace", charset="UTF-8"'
    if isinstance(error, MethodNotAllowed):
        answer.headers["allow"] = ", ".join(error.allow)
    return answer


@web.middleware
async def check_caller(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Ask for the key if there is one, and keep pages of other origins from changing anything."""
    config = request.app[CONTROL].config
    key = config.auth.admin_api_key
    if key and request.path not in OPEN_PATHS and not guard.holds_key(request.headers, key):
        raise Unauthorized("an admin key is needed")
    if request.method in CHANGES:
        guard.check_origin(request.headers, config.server.admin_host, has_key=bool(key))
    return await handler(request)


async def health(request: web.Request) -> web.Response:
    """200 while the control plane lives."""
    return web.json_response({"status": "ok"})


async def metrics(request: web.Request) -> web.Response:
    """The metrics page, as text or OpenMetrics by Accept."""
    accept = request.headers.get("accept", "")
    body, content_type = await request.app[CONTROL].metrics_page.render(accept)
    return web.Response(body=body, headers={"content-type": content_type})


async def dashboard_data(request: web.Request) -> web.Response:
    """The document behind the dashboard and `headrace top`."""
    document = orjson.dumps(dashboard.document(request.app[CONTROL]))
    return web.Response(body=document, content_type="application/json")


async def show_autoscale(request: web.Request) -> web.Response:
    """How many replicas every model should have, and why; and which gateway sees to it."""
    control = request.app[CONTROL]
    return web.json_response({**control.autoscale.document(), **control.actuator.document()})


async def show_config(request: web.Request) -> web.Response:
    """The configuration in force, secrets masked, and how the last reload went."""
    control = request.app[CONTROL]
    return web.json_response(
        {
            "generation": control.config_generation,
            "last_error": control.reloader.last_error or None,
            "config": configuration.masked(control.config),
        }
    )


async def reload(request: web.Request) -> web.Response:
    """Reload the configuration; 400 with the reasons when it is bad."""
    control = request.app[CONTROL]
    control.reload()
    return web.json_response({"generation": control.config_generation})
