"""POST /explain: what would be chosen for a request, and why, without sending or booking anything.

The answer comes from a balancer of control's own over the same segment that the processes use, so
the scores are those of this moment.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from aiohttp import web

from headrace.control.admin_replicas import CONTROL
from headrace.core.balancer import Balancer
from headrace.core.explanation import explain
from headrace.core.request import RouteRequest
from headrace.core.scan import BodyScan
from headrace.errors import InvalidJson, InvalidRequest, UnknownModel

if TYPE_CHECKING:
    from headrace.control.loop import Control


class Explainer:
    """Keeps the reading balancer in step with what was published."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._balancer: Balancer | None = None
        self._seen = 0  # generation of the snapshot it knows

    def balancer(self) -> Balancer:
        """The balancer, as of the snapshot in force."""
        control = self._control
        segment = control.segment
        if self._balancer is None:
            self._balancer = Balancer(segment, segment.processes, settings_of(control))
        if self._seen != segment.blob_generation:
            self._seen = segment.blob_generation
            books = self._balancer.books
            self._balancer.configure(settings_of(control))
            for member in control.registry.members.values():
                books.set_replica(member.slot, member.id)
            for number in control.registry.model_ids.by_name.values():
                books.clear_model(number)
            for model in control.registry.snapshot(control.config).models:
                books.set_model(model.id, model.group, model.slots, model.pairs)
        return self._balancer

    def explain(self, body: bytes, headers: Any) -> dict[str, Any]:
        """Return the document of the answer; raises InvalidJson, InvalidRequest, UnknownModel."""
        control = self._control
        try:
            scan = BodyScan(body)
        except ValueError as error:
            raise InvalidJson(f"body: {error}") from None
        known = control.registry.known_models(control.config)
        name = model_of(scan, known, control.config.routing.model_aliases)
        request = RouteRequest()
        request.read(scan, name.encode())
        request.model = control.registry.model_ids.of(name)
        for rank, header in enumerate(control.config.routing.session_headers):
            if header in headers:
                request.offer(rank, headers[header].encode("utf-8", "surrogateescape"))
        found = explain(self.balancer(), request, time.monotonic_ns())
        return with_names(found, {m.slot: m for m in control.registry.members.values()})

    def retry_budget(self) -> float:
        """Retries that may be made at once."""
        return float(self.balancer().budget(time.monotonic_ns()))


def settings_of(control: Control) -> dict[str, Any]:
    """The settings that a balancer takes, as the processes give them to theirs."""
    config = control.config
    settings: dict[str, Any] = {}
    for section in (config.routing, config.admission, config.retry):
        settings.update({name: getattr(section, name) for name in section.__struct_fields__})
    return settings


def model_of(scan: BodyScan, known: Collection[str], aliases: dict[str, str]) -> str:
    """The model that a body asks for, aliases resolved."""
    kind = scan.kind("model")
    if kind in ("absent", "null"):
        if len(known) != 1:
            raise InvalidRequest(f"model is missing; {len(known)} are served", param="model")
        return next(iter(known))
    asked = scan.text("model") if kind == "string" else None
    if asked is None:
        raise InvalidRequest("model is not a string", param="model")
    name = asked.decode("utf-8", "replace")
    name = name if name in known else aliases.get(name, name)
    if name not in known:
        raise UnknownModel(f"no replica serves the model {name[:200]!r}")
    return name


def with_names(found: dict[str, Any], members: dict[int, Any]) -> dict[str, Any]:
    """Put ids and URLs in the place of slots."""
    rows = []
    for row in found.pop("replicas"):
        member = members.get(row.pop("slot"))
        if member is not None:
            rows.append({"id": member.id, "url": member.url, **row})
    chosen = members.get(found.pop("slot"))
    return {**found, "choice": chosen.id if chosen is not None else None, "replicas": rows}


async def answer(request: web.Request) -> web.Response:
    """Explain the request that is the body."""
    explainer = request.app[CONTROL].explainer
    return web.json_response(explainer.explain(await request.read(), request.headers))
