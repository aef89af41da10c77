"""Names of the reasons that travel in the segment as numbers; a number is a place in its tuple."""

# Why the gateway refused a request: the code of the error it answered with.
REJECTED = (
    "other",
    "overloaded",
    "queue_timeout",
    "no_replica",
    "draining",
    "unauthorized",
    "body_too_large",
    "headers_too_large",
    "invalid_json",
    "invalid_request",
    "bad_http",
    "client_timeout",
    "model_not_found",
    "not_found",
    "method_not_allowed",
    "not_supported",
    "upstream_error",
    "upstream_timeout",
)
# Why a request was sent a second time.
RETRIED = ("other", "connect", "stale", "before_first_token")
