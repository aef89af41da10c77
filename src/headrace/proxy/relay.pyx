from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint64_t

from headrace.core.fleet cimport (
    FAILURE_ERROR_EVENT, FAILURE_GOING_AWAY, FAILURE_OVERLOADED, OUTCOME_TIMEOUT,
)
from headrace.endpoints import ENDPOINTS
from headrace.proxy cimport booking
from headrace.proxy.exchange cimport (
    RELAY_DECHUNK, RELAY_ENCHUNK, RELAY_RAW, RELAY_WITHOUT_USAGE, Exchange,
)
from headrace.proxy.head cimport FRAMING_CHUNKED, FRAMING_CLOSE, framing_close
from headrace.proxy.wire cimport Buffer

from headrace.proxy import replies

cdef enum:
    MAX_FILL_BYTES = 65536  # of newlines that complete an open chunk


cdef int watch(Exchange x, const char *data, size_t size, uint64_t now_ns) except -1:
    """Body bytes without their framing."""
    cdef int events
    x.byte_ns = now_ns
    if x.mode == RELAY_RAW or x.mode == RELAY_ENCHUNK:
        events = x.seen.feed(data, size)
    elif x.mode == RELAY_DECHUNK:
        events = x.seen.feed(data, size)
        x.plane.body.add(data, size)
    else:
        events = x.seen.feed_without_usage(data, size, x.plane.body)
    if events:
        booking.tokens(x, events, now_ns)
    else:
        x.lease.note_bytes(now_ns)
    return 0


cdef int render(Exchange x, bytes data, size_t start, size_t at) except -1:
    """Behind the head, if one stands in plane.out: data[start:at] in the client's framing."""
    cdef Buffer out = x.plane.out
    cdef Buffer body = x.plane.body
    cdef size_t n = at - start
    if x.mode == RELAY_RAW:
        return out.add(PyBytes_AS_STRING(data) + start, n)
    if x.mode == RELAY_ENCHUNK:
        body.add(PyBytes_AS_STRING(data) + start, n)
    elif x.mode == RELAY_WITHOUT_USAGE and x.f.done:
        x.seen.give_partial(body)
    if body.size and x.mode != RELAY_DECHUNK:
        out.add_bytes(b"%x\r\n" % body.size)
    out.add(body.data, body.size)
    if body.size and x.mode != RELAY_DECHUNK:
        out.add(b"\r\n", 2)
    body.size = 0
    if x.f.done and x.mode == RELAY_WITHOUT_USAGE:
        out.add(b"0\r\n\r\n", 5)
    return 0


cdef int early_failure(Exchange x) noexcept:
    """The failure that an answer begins with, NONE if it begins well, or STILL_UNKNOWN."""
    if x.seen.events:
        if x.seen.begins_with_error():
            return FAILURE_OVERLOADED if x.seen.w.stream.refused else FAILURE_ERROR_EVENT
        return NONE if x.f.done or x.seen.has_begun() else STILL_UNKNOWN
    if x.status >= 500 and x.status != 503:
        if not x.f.done:
            return STILL_UNKNOWN
        return FAILURE_GOING_AWAY if x.seen.going_away else NONE
    return NONE if x.f.done or x.seen.content else STILL_UNKNOWN


cdef bytes ending(Exchange x, int outcome):
    cdef const char *before = b""
    cdef const char *after = b""
    cdef uint64_t newlines = 0
    cdef bint closable = x.mode != RELAY_RAW or x.f.kind == FRAMING_CLOSE
    if x.mode == RELAY_RAW and x.f.kind == FRAMING_CHUNKED:
        closable = (framing_close(&x.f, &before, &newlines, &after) == 0
                    and newlines <= MAX_FILL_BYTES)
    if not closable or not x.seen.events:
        return None
    code = "upstream_timeout" if outcome == OUTCOME_TIMEOUT else "upstream_error"
    event = replies.error_event(code, ENDPOINTS[x.endpoint])
    if newlines or not x.seen.is_between_events():
        event = b"\n\n" + event
    if x.r.minor == 0:
        return event
    return (<bytes>before + b"\n" * newlines + <bytes>after + b"%x\r\n" % len(event) + event
            + b"\r\n0\r\n\r\n")
