"""The admin port: metrics, replicas, reload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from headrace.errors import ConfigError
from headrace.observe import dashboard, exposition

if TYPE_CHECKING:
    from headrace.control.loop import Control

CONTROL: web.AppKey[Control] = web.AppKey("control")


async def start(control: Control) -> web.AppRunner:
    """Open the admin port; raises ConfigError when it cannot be had."""
    app = web.Application()
    app[CONTROL] = control
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/replicas", replicas)
    app.router.add_get("/dashboard", dashboard.serve_page)
    app.router.add_get("/dashboard/data", dashboard_data)
    app.router.add_post("/reload", reload)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    server = control.config.server
    try:
        await web.TCPSite(runner, server.admin_host, server.admin_port).start()
    except OSError as error:
        where = f"{server.admin_host}:{server.admin_port}"
        raise ConfigError(
            f"server.admin_port: cannot listen on {where}: {error.strerror}"
        ) from error
    return runner


async def health(request: web.Request) -> web.Response:
    """200 while the control plane lives."""
    return web.json_response({"status": "ok"})


async def metrics(request: web.Request) -> web.Response:
    """The metrics page, as text or OpenMetrics by Accept."""
    body, content_type = exposition.render(request.app[CONTROL], request.headers.get("accept", ""))
    return web.Response(body=body, headers={"content-type": content_type})


async def replicas(request: web.Request) -> web.Response:
    """Every replica with its state."""
    return web.json_response({"replicas": describe(request.app[CONTROL])})


def describe(control: Control) -> list[dict[str, Any]]:
    """The entries of GET /replicas."""
    return [
        {
            "id": member.id,
            "url": member.url,
            "models": sorted(member.cards),
            "state": member.state,
            "reason": member.reason,
            "since": member.since,
            "inflight": control.segment.requests(member.slot),
        }
        for member in control.registry.members.values()
    ]


async def dashboard_data(request: web.Request) -> web.Response:
    """The document behind the dashboard and `headrace top`."""
    return web.json_response(dashboard.document(request.app[CONTROL]))


async def reload(request: web.Request) -> web.Response:
    """Reload the configuration; 400 with the reason when it is bad."""
    try:
        request.app[CONTROL].reload()
    except ConfigError as error:
        return web.json_response({"error": {"message": str(error)}}, status=400)
    return web.json_response({"generation": request.app[CONTROL].config_generation})
