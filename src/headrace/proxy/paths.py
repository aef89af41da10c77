"""What the paths of the data port mean: which are ours, which are routed, which nobody may call."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from headrace.endpoints import ENDPOINTS, PATHS, PREFIXES

HEALTH, READY, VERSION, MODELS, MODEL, METRICS, POST_ONLY, ANY, ONE_ENGINE, NOT_FOUND = range(10)

_OWN = {
    b"/health": HEALTH,
    b"/healthz": HEALTH,
    b"/liveness": HEALTH,
    b"/readiness": READY,
    b"/readyz": READY,
    b"/version": VERSION,
    b"/metrics": METRICS,
    b"/v1/models": MODELS,
}
# path -> (kind, endpoint id)
EXACT: dict[bytes, tuple[int, int]] = {
    **{
        path: (kind, ENDPOINTS.index("models") if kind == MODELS else 0)
        for path, kind in _OWN.items()
    },
    **{path: (POST_ONLY, ENDPOINTS.index(name)) for path, name in PATHS.items()},
}
# A spelling that a server behind us might read as another path.
_ODD = re.compile(rb"[%\\;A-Z]|//|/\.")
_DECODINGS = 4


def normalized(path: bytes) -> bytes:
    """The path behind all spellings: decoded, lower case, no empty, dot or trailing segments."""
    for _ in range(_DECODINGS):
        decoded = unquote_to_bytes(path)
        if decoded == path:
            break
        path = decoded
    kept: list[bytes] = []
    for segment in path.replace(b"\\", b"/").lower().split(b"/"):
        segment = segment.partition(b";")[0]
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    return b"/" + b"/".join(kept)


def classify(path: bytes, blocked: tuple[bytes, ...]) -> tuple[int, int]:
    """(kind, endpoint id) of a path that is not in EXACT; `blocked` as `normalized` gives them."""
    plain = normalized(path) if _ODD.search(path) else path.rstrip(b"/")
    if any(plain == one or plain.startswith(one + b"/") for one in blocked):
        return NOT_FOUND, 0
    if not path.startswith(b"/v1/") or not (plain + b"/").startswith(b"/v1/"):
        return NOT_FOUND, 0
    if path.startswith(b"/v1/models/"):
        return MODEL, ENDPOINTS.index("models")
    if path.startswith(b"/v1/responses/"):
        return ONE_ENGINE, ENDPOINTS.index("responses")
    for prefix, name in PREFIXES:
        if path.startswith(prefix):
            return POST_ONLY, ENDPOINTS.index(name)
    return ANY, 0
