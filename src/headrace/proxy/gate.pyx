from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp

from headrace.proxy cimport own
from headrace.proxy.exchange cimport Exchange
from headrace.proxy.head cimport *

from headrace.proxy import paths, replies
from headrace.proxy.paths import classify

cdef enum PathKind:  # as in paths.py
    PATH_HEALTH
    PATH_READY
    PATH_VERSION
    PATH_MODELS
    PATH_MODEL
    PATH_METRICS
    PATH_POST_ONLY
    PATH_ANY
    PATH_ONE_ENGINE
    PATH_NOT_FOUND

cdef bytes POST = b"POST"
cdef bytes HEAD = b"HEAD"

assert paths.NOT_FOUND == PATH_NOT_FOUND


cdef int check(Exchange x, uint64_t now_ns) except -1:
    cdef bytes path = _path(x)
    cdef bytes method = _method(x)
    cdef int kind
    cdef tuple route
    x.is_head = method is HEAD
    if x.r.flags & HEAD_EXPECTS:
        return _refuse(x, 400, "invalid_request", "the expectation is not known; 100-continue is")
    if path is None:
        return _refuse(x, 400, "invalid_request", "the request target is not a path")
    route = <tuple>x.plane.routes.get(path)
    if route is None:
        route = classify(path, x.plane.blocked)
    kind, x.endpoint = route[0], route[1]
    if kind <= PATH_READY:
        return _own(x, kind, method, path)
    if x.r.origin.len and x.r.preflight_method.len and method == b"OPTIONS":
        return _preflight(x)
    if not x.plane.open_access and not _has_key(x):
        return _refuse(x, 401, "unauthorized", "no gateway key, or a wrong one")
    if kind == PATH_NOT_FOUND or (kind == PATH_METRICS
                                  and not x.plane.config.server.expose_metrics):
        return _refuse(x, 404, "not_found", "no such path")
    if kind <= PATH_METRICS:
        return _own(x, kind, method, path)
    if method == b"OPTIONS":
        x.answer_page(204, b"", b"", b"allow: POST, OPTIONS\r\n" if kind == PATH_POST_ONLY else b"")
        return 1
    if kind == PATH_POST_ONLY and method is not POST:
        return _wrong_method(x, b"POST, OPTIONS")
    if method == b"TRACE":
        return _wrong_method(x, b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
    if kind == PATH_ONE_ENGINE and len(x.plane.snapshot.replicas) > 1:
        return _refuse(x, 501, "not_supported",
                       "a response lives in one engine, and there are several here")
    if x.r.content_length > x.plane.max_body_bytes:
        return _refuse(x, 413, "body_too_large",
                       f"body of {x.r.content_length} bytes, limit {x.plane.max_body_bytes}")
    return _room(x, now_ns)


cdef bytes _method(Exchange x):
    cdef const char *m = PyBytes_AS_STRING(x.head)
    if x.r.method.len == 4 and memcmp(m, b"POST", 4) == 0:
        return POST
    if x.r.method.len == 4 and memcmp(m, b"HEAD", 4) == 0:
        return HEAD
    return x.text(0, x.r.method.len)


cdef int _room(Exchange x, uint64_t now_ns) except -1:
    if x.plane.stopping:
        return _refuse(x, 503, "draining", "the gateway is about to stop", 1)
    if x.plane.is_full():
        return _refuse(x, 429, "overloaded", "admission.max_concurrent_requests is reached",
                       x.plane.balancer.retry_after_s(0, now_ns))
    return 0


cdef bytes _path(Exchange x):
    """The path without its query; None if the target is not one. An absolute target is cut to its
    path.
    """
    cdef const char *h = PyBytes_AS_STRING(x.head)
    cdef const char *start
    cdef const char *query
    cdef uint64_t skip
    if x.r.target.len > 8 and (memcmp(h + x.r.target.at, b"http://", 7) == 0
                               or memcmp(h + x.r.target.at, b"https://", 8) == 0):
        skip = 8 if h[x.r.target.at + 4] == 115 else 7
        start = <const char *>memchr(h + x.r.target.at + skip, 47, x.r.target.len - skip)
        if start == NULL:
            return None
        x.r.target.len -= (start - h) - x.r.target.at
        x.r.target.at = start - h
    start = h + x.r.target.at
    if start[0] != 47:
        return None
    query = <const char *>memchr(start, 63, x.r.target.len)
    return PyBytes_FromStringAndSize(start, x.r.target.len if query == NULL else query - start)


cdef bint _has_key(Exchange x):
    cdef bytes value
    if x.r.keys > 2:
        return False
    if x.r.authorization.len:
        value = x.text(x.r.authorization.at, x.r.authorization.len)
        if value == x.down.good_key:
            return True
        if value[:7].lower() == b"bearer " and x.plane.allows(value[7:].strip(b" \t")):
            x.down.good_key = value
            return True
    return x.r.api_key.len > 0 and x.plane.allows(x.text(x.r.api_key.at, x.r.api_key.len))


cdef int _own(Exchange x, int kind, bytes method, bytes path) except -1:
    """Our own pages."""
    if method != b"GET" and method != b"HEAD":
        return _wrong_method(x, b"GET, HEAD")
    replies.own_page(x, kind, path)
    return 1


cdef int _wrong_method(Exchange x, bytes allow) except -1:
    own.reply(x, 405, "method_not_allowed", "this path does not take this method", None, 0,
              b"allow: " + allow + b"\r\n", False)
    return 1


cdef int _refuse(Exchange x, int status, str code, str message, double retry_after_s=0) except -1:
    own.reply(x, status, code, message, None, retry_after_s, b"", False)
    return 1


cdef int _preflight(Exchange x) except -1:
    cdef bytes allowed = cors_lines(x)
    if allowed:
        allowed += (b"access-control-allow-methods: GET, POST, DELETE, OPTIONS\r\n"
                    b"access-control-max-age: 600\r\n")
        if x.r.preflight_headers.len:
            allowed += (b"access-control-allow-headers: "
                        + x.text(x.r.preflight_headers.at, x.r.preflight_headers.len) + b"\r\n")
    x.answer_page(204, b"", b"", allowed)
    return 1


cdef bytes cors_lines(Exchange x):
    cdef bytes origin
    if x.r.origin.len == 0 or not x.plane.origins:
        return b""
    origin = x.text(x.r.origin.at, x.r.origin.len)
    if not x.plane.any_origin and origin not in x.plane.origins:
        return b"vary: origin\r\n"
    return (b"access-control-allow-origin: " + (b"*" if x.plane.any_origin else origin)
            + b"\r\naccess-control-expose-headers: x-request-id, x-headrace-replica, "
            b"x-headrace-error\r\nvary: origin\r\n")
