"""The live page of the admin port, and the document behind it that `headrace top` reads too."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import statistics
import time
from importlib import resources
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from headrace import __version__
from headrace.observe.history import numbers

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

SHOWN = 30  # recent decisions and state changes


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _digest(page: str, tag: str) -> str:
    """The CSP source of the page's one inline block of a kind."""
    found = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.S)
    assert found is not None
    digest = hashlib.sha256(found.group(1).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def page() -> tuple[str, dict[str, str]]:
    """The HTML page and its headers; its own style and script are all that the policy lets run."""
    html = resources.files("headrace.observe").joinpath("dashboard.html").read_text()
    policy = (
        f"default-src 'none'; script-src {_digest(html, 'script')}; "
        f"style-src {_digest(html, 'style')}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }
    return html, headers


def relative_speeds(speeds: dict[str, float | None]) -> dict[str, float | None]:
    """Learned speeds relative to the median of those that are known."""
    known = [speed for speed in speeds.values() if speed]
    usual = statistics.median(known) if known else 1.0
    return {name: speed / usual if speed else None for name, speed in speeds.items()}


def _replica(control: Control, member: Member, speed: float | None) -> dict[str, Any]:
    row = control.segment.row(member.slot) or {}
    waiting = row.get("waiting", -1)
    utils = [g.util for g in member.gpus if g.util is not None]
    temps = [g.temp_celsius for g in member.gpus if g.temp_celsius is not None]
    xids = [g.xid for g in member.gpus if g.xid]
    return {
        "id": member.id,
        "models": sorted(member.cards),
        "state": member.state,
        "reason": member.reason,
        "since": member.since,
        "inflight": control.segment.requests(member.slot),
        "max_concurrency": row.get("max_concurrency", 0),
        "waiting": waiting if waiting >= 0 else None,
        "max_queue": row.get("max_queue", 0),
        "kv_usage": _known(row.get("kv_usage", math.nan)),
        "hit_ratio": _known(row.get("hit_ratio", math.nan)),
        "speed": speed,
        "gpu_util": sum(utils) / len(utils) if utils else None,
        "gpu_temp": max(temps, default=None),
        "xid": max(xids, default=None),
    }


def document(control: Control) -> dict[str, Any]:
    """Everything the page shows, as JSON values; unknown is null."""
    members = list(control.registry.members.values())
    speeds = relative_speeds({m.id: control.speed(m) for m in members})
    return {
        "headrace": __version__,
        "version": __version__,
        "time": time.time(),
        "policy": control.config.routing.policy,
        "processes": control.process_count,
        "serving": control.segment.serving,
        "rate": control.history.rate,
        "numbers": numbers(control.history),
        "replicas": [_replica(control, m, speeds[m.id]) for m in members],
        "decisions": [orjson.loads(line) for line in list(control.recent)[-SHOWN:][::-1]],
        "changes": list(control.changes)[-SHOWN:][::-1],
    }


async def serve_page(request: web.Request) -> web.Response:
    """GET /dashboard."""
    html, headers = page()
    return web.Response(text=html, content_type="text/html", headers=headers)
