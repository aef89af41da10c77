from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from headrace.core.balancer cimport GATEWAY_FULL, OVERLOADED
from headrace.core.fleet cimport *
from headrace.observe import reasons
from headrace.proxy cimport gate
from headrace.proxy.clock cimport now_ns as clock_ns
from headrace.proxy.exchange cimport X_READING, Exchange
from headrace.proxy.wire cimport Buffer

from headrace.proxy import replies


cdef int refuse_by(Exchange x, int verdict, uint64_t now_ns) except -1:
    if verdict == OVERLOADED:
        return _come_again(x, 429, "overloaded", "every replica of this model is above its limit",
                           now_ns)
    if verdict == GATEWAY_FULL:
        return _come_again(x, 429, "overloaded", "admission.max_concurrent_requests is reached",
                           now_ns)
    return _come_again(x, 503, "no_replica", "no replica can serve this model at the moment",
                       now_ns)


cdef int refuse_waiting(Exchange x, uint64_t now_ns) except -1:
    if x.is_held:
        return _come_again(x, 503, "no_replica", "no replica of this model came up in time", now_ns)
    return _come_again(x, 429, "queue_timeout", "no replica had room in admission.queue_timeout_s",
                       now_ns)


cdef int _come_again(Exchange x, int status, str code, str message, uint64_t now_ns) except -1:
    """Refuse for the moment; Retry-After is from the rate at which requests end."""
    cdef double after_s = max(x.plane.balancer.retry_after_s(x.model.id, now_ns), 1)
    return reply(x, status, code, message, None, after_s, b"", False)


cdef int reply(Exchange x, int status, str code, str message, str param, double retry_after_s,
               bytes extra, bint close) except -1:
    cdef uint64_t now = clock_ns()
    cdef int outcome = OUTCOME_CLIENT_ERROR
    cdef bytes lines = b"x-headrace-error: " + code.encode() + b"\r\n" + extra
    if retry_after_s > 0:
        lines += b"retry-after: %d\r\n" % max(<int64_t>(retry_after_s + 0.999), 1)
    if status == 429 or status == 503:
        outcome = OUTCOME_REJECTED
    elif status == 504:
        outcome = OUTCOME_TIMEOUT
    elif status == 502:
        outcome = OUTCOME_UPSTREAM_ERROR
    why = reasons.REJECTED.index(code) if code in reasons.REJECTED else 0
    x.plane.count(SERIES_REJECTED, why, 0, 0, 0)
    x.closes = x.closes or close or x.plane.leaving
    write(x, status, b"application/json", replies.error_body(status, code, message, param), lines,
          x.closes)
    x._end(outcome, status, now)
    return x.down.next_request(x.closes)


cdef int write(Exchange x, int status, bytes content_type, bytes body, bytes extra,
               bint close) except -1:
    cdef Buffer out = x.plane.out
    out.add_bytes(replies.status_line(status))
    if PyBytes_GET_SIZE(content_type):
        out.add_bytes(b"content-type: " + content_type + b"\r\n")
    if status != 204:
        out.add_bytes(b"content-length: %d\r\n" % len(body))
    out.add_bytes(b"x-request-id: " + x.request_id + b"\r\n" + extra)
    if x.r.origin.len:
        out.add_bytes(gate.cors_lines(x))
    out.add_bytes(b"connection: close\r\n\r\n" if close or x.closes else b"\r\n")
    if not x.is_head:
        out.add_bytes(body)
    return x.down.write_out(out)


cdef int begin_unread(Exchange x) except -1:
    cdef unsigned char minor = 1
    x.head = b""
    x.began_ns = clock_ns()
    x.state = X_READING
    x.r.flags = 0
    x.r.origin.len = 0
    x.r.minor = minor
    x.endpoint = x.status = 0
    x.model = x.body = None
    x.trace_line = x.trace_text = b""
    x.is_head = False
    x.request_id = x.plane.new_request_id()
    x.queue_wait_ns = x.sent_ns = x.bytes_in = x.bytes_out = 0
    return 0
