"""Answers that the gateway makes itself: error bodies and pages that no replica gives."""

from __future__ import annotations

from asyncio import Future
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import unquote_to_bytes
from urllib.request import Request, urlopen

import orjson

from headrace.errors import error_type
from headrace.proxy import paths

try:
    VERSION = version("headrace")
except PackageNotFoundError:
    VERSION = "0"

JSON = b"application/json"
PAGE_TIMEOUT_S = 5.0


def error_body(status: int, code: str, message: str, param: str | None) -> bytes:
    """An error as the OpenAI API spells it."""
    fields = {"message": message, "type": error_type(status), "param": param, "code": code}
    return orjson.dumps({"error": fields})


_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_CUT = {
    "upstream_error": "the replica broke off before the end",
    "upstream_timeout": "the replica fell silent or took too long",
}


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    return _STATUS_LINES[status]


def error_event(code: str, endpoint: str) -> bytes:
    """The last event of a stream that a replica left unfinished."""
    fields = {"type": "upstream_error", "code": code, "message": _CUT[code]}
    if endpoint == "messages":
        return b"event: error\ndata: " + orjson.dumps({"type": "error", "error": fields}) + b"\n\n"
    return b"data: " + orjson.dumps({"error": fields}) + b"\n\n"


def own_page(exchange: Any, kind: int, path: bytes) -> None:
    """Answer one of our own paths."""
    plane = exchange.owner
    if kind == paths.HEALTH:
        exchange.answer_page(200, JSON, b'{"status":"ok"}')
    elif kind == paths.READY:
        _ready(exchange, plane)
    elif kind == paths.VERSION:
        exchange.answer_page(200, JSON, orjson.dumps({"version": VERSION}))
    elif kind == paths.MODELS:
        exchange.answer_page(200, JSON, orjson.dumps({"object": "list", "data": _cards(plane)}))
    elif kind == paths.MODEL:
        _one_model(exchange, plane, unquote_to_bytes(path[len(b"/v1/models/") :]))
    else:
        _metrics(exchange, plane)


def _ready(exchange: Any, plane: Any) -> None:
    segment = plane.segment
    if segment.draining or plane.stopping:
        exchange.answer_error(503, "draining", "the gateway is about to stop")
    elif segment.serving == 0 and not plane.config.autoscale.holds:
        exchange.answer_error(503, "no_replica", "no replica takes traffic")
    else:
        exchange.answer_page(200, JSON, b'{"status":"ready"}')


def _cards(plane: Any) -> list[dict[str, Any]]:
    """Entries of the models that a live replica serves, and of their aliases."""
    live = {model.name: model for model in plane.snapshot.models if plane.is_live(model)}
    cards = [{"object": "model", **model.card, "id": name} for name, model in live.items()]
    for alias, name in plane.config.routing.model_aliases.items():
        if name in live and alias not in live:
            cards.append({"object": "model", **live[name].card, "id": alias})
    return cards


def _one_model(exchange: Any, plane: Any, name: bytes) -> None:
    for card in _cards(plane):
        if card["id"].encode() == name:
            exchange.answer_page(200, JSON, orjson.dumps(card))
            return
    message = "no live replica serves this model"
    exchange.answer_error(404, "model_not_found", message, param="model")


def _metrics(exchange: Any, plane: Any) -> None:
    """Hand on the admin port's page, which only control can render; a thread waits for it."""
    server, auth = plane.config.server, plane.config.auth
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(server.admin_host, server.admin_host)
    request = Request(f"http://{host}:{server.admin_port}/metrics")
    if auth.admin_api_key:
        request.add_header("authorization", f"Bearer {auth.admin_api_key}")
    asked = exchange.request

    def answer(fetched: Future[tuple[bytes, bytes]]) -> None:
        if exchange.request is not asked:
            return  # the client has gone
        if fetched.exception() is not None:
            exchange.answer_error(503, "no_replica", "the control plane does not answer")
        else:
            exchange.answer_page(200, *fetched.result())

    plane.loop.run_in_executor(None, _fetch, request).add_done_callback(answer)


def _fetch(request: Request) -> tuple[bytes, bytes]:
    with urlopen(request, timeout=PAGE_TIMEOUT_S) as page:
        return page.headers["content-type"].encode(), page.read()
