"""Error answers in the shapes vLLM 0.32 uses."""

from __future__ import annotations

import json


class ApiError(Exception):
    """A refusal of one request: HTTP status and vLLM's error body."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": kind, "param": param, "code": status}

    def body(self) -> bytes:
        return json.dumps({"error": self.error}, separators=(",", ":")).encode()

    def event(self) -> bytes:
        """The error as an SSE event; unlike ordinary events it has blanks after `:` and `,`."""
        return f"data: {json.dumps({'error': self.error})}\n\n".encode()


def bad_value(message: str, param: str | None, value: object = None) -> ApiError:
    """400 for a well-formed field with an impossible value."""
    if param is not None:
        shown = "" if value is None else f", value={value}"
        message = f"{message} (parameter={param}{shown})"
    return ApiError(400, message, "BadRequestError", param)


def invalid_field(kind: str, field: str, text: str, given: object) -> ApiError:
    """400 for a body that does not have the required form."""
    shown = repr(f"<dict of {len(given)} items>" if isinstance(given, dict) else given)[:80]
    detail = f"{{'type': '{kind}', 'loc': '{field}', 'msg': '{text}', 'input': {shown}}}"
    return ApiError(400, f"1 validation error:\n  {detail}", "Bad Request", field)


def unknown_model(name: str, served: list[str]) -> ApiError:
    text = f"The model `{name}` does not exist. Valid aliases: {', '.join(served)}."
    return ApiError(404, text, "NotFoundError", "model")


def wrong_content_type() -> ApiError:
    text = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    return ApiError(400, text, "Bad Request")


def overloaded() -> ApiError:
    text = (
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance."
    )
    return ApiError(503, text, "Service Unavailable")


def engine_dead() -> ApiError:
    text = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return ApiError(500, text, "InternalServerError")


def shutting_down() -> ApiError:
    text = "cannot schedule new futures after shutdown"
    return ApiError(500, text, "InternalServerError")
