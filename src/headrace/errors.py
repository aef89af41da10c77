"""Every error of headrace: one tree, in which a class says whose fault it is and its HTTP status.

`ClientError` is the caller's fault, `ReplicaError` an engine's, `GatewayError` ours (capacity or
state). The status and the code of a class are fixed; messages carry the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# A client that left before a response head has no answer; it is booked with this status.
CLIENT_CLOSED_STATUS = 499


def error_type(status: int) -> str:
    """The OpenAI error `type` of a status; what is no 401, 429 or 5xx is an invalid request."""
    if status == 401:
        return "authentication_error"
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 and status != 501 else "invalid_request_error"


class HeadraceError(Exception):
    """Base of all; carries a message for people and, where one is to blame, the name of a field."""

    status = 500
    code = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    @property
    def type(self) -> str:
        """The OpenAI error type that belongs to the status."""
        return error_type(self.status)

    def body(self) -> dict[str, dict[str, str | None]]:
        """The error as the OpenAI API spells it, ready for a JSON encoder."""
        fields = {"message": self.message, "type": self.type, "param": self.param}
        return {"error": {**fields, "code": self.code}}


# -- the client's fault


class ClientError(HeadraceError):
    """The request cannot be served as it was sent."""

    status = 400
    code = "invalid_request"


class InvalidRequest(ClientError):
    """The body lacks what is needed, or a field has the wrong type."""


class InvalidJson(ClientError):
    """The body is no JSON object."""

    code = "invalid_json"


class BadHttp(ClientError):
    """The request is not framed as HTTP; the connection is closed after the answer."""

    code = "bad_http"


class Unauthorized(ClientError):
    """No key, or a wrong one."""

    status = 401
    code = "unauthorized"


class NotFound(ClientError):
    """No such path, or one that is blocked."""

    status = 404
    code = "not_found"


class UnknownModel(ClientError):
    """No replica has ever served this model."""

    status = 404
    code = "model_not_found"

    def __init__(self, message: str, *, param: str | None = "model") -> None:
        super().__init__(message, param=param)


class MethodNotAllowed(ClientError):
    """The path exists, but not for this method."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, allow: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.allow = tuple(allow)


class ClientTimeout(ClientError):
    """The head or the body did not arrive in time."""

    status = 408
    code = "client_timeout"


class BodyTooLarge(ClientError):
    """The body is above `server.max_body_bytes`."""

    status = 413
    code = "body_too_large"


class HeadersTooLarge(ClientError):
    """The head is above `server.max_header_bytes`."""

    status = 431
    code = "headers_too_large"


class NotSupported(ClientError):
    """Understood, but not offered (WebSocket, CONNECT, a response id with several replicas)."""

    status = 501
    code = "not_supported"


# -- a replica's fault


class ReplicaError(HeadraceError):
    """A replica failed before it had sent a response head."""

    status = 502
    code = "upstream_error"


class UpstreamError(ReplicaError):
    """Refused everywhere, reset, or garbage in place of a response head."""


class UpstreamTimeout(ReplicaError):
    """No connection, no first byte or no end within the time-outs."""

    status = 504
    code = "upstream_timeout"


# -- ours: capacity, state, configuration


class GatewayError(HeadraceError):
    """Nothing is wrong with the request; it cannot be served at this moment.

    `retry_after_s` says in how many seconds it is worth another try; None: unknown.
    """

    status = 503
    code = "no_replica"

    def __init__(
        self, message: str, retry_after_s: float | None = None, *, param: str | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class Overloaded(GatewayError):
    """Every eligible replica, or the gateway itself, is above its limit."""

    status = 429
    code = "overloaded"


class QueueTimeout(Overloaded):
    """Waited `admission.queue_timeout_s` in the waiting room in vain."""

    code = "queue_timeout"


class NoReplica(GatewayError):
    """The model is known, but nobody can serve it."""


class Draining(GatewayError):
    """The gateway is about to stop."""

    code = "draining"


class ConfigError(HeadraceError):
    """A configuration that cannot be used; `problems` has one line for each mistake."""

    status = 400
    code = "invalid_config"

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def _tree(cls: type[HeadraceError] = HeadraceError) -> Iterator[type[HeadraceError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _tree(child)


# code -> (status, type), for whoever writes an answer without an exception at hand
CODES: dict[str, tuple[int, str]] = {
    cls.code: (cls.status, error_type(cls.status)) for cls in _tree()
}
