from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint32_t
from libc.string cimport memset

from headrace.proxy.exchange cimport Exchange
from headrace.proxy.head cimport HEADER_BIT, HEADER_TRACEPARENT, HEADER_TRACESTATE, hex_write

cdef extern from "trace.h" nogil:
    enum:
        TRACE_DIGITS
        TRACE_SPAN_DIGITS
        TRACE_SAMPLED
    struct trace_parent:
        char trace[32]
        char span[16]
        unsigned char flags
    int trace_read(const char *value, uint32_t len, trace_parent *out)


cdef int begin(Exchange x) except -1:
    cdef trace_parent parent
    cdef char span[16]
    cdef bytes ids
    x.trace_line = x.trace_text = b""
    x.trace_stays = 0
    if not x.plane.traces:
        return 0
    x.trace_stays = HEADER_BIT(HEADER_TRACEPARENT)
    if x.r.traceparents != 1 or trace_read(PyBytes_AS_STRING(x.head) + x.r.traceparent.at,
                                           x.r.traceparent.len, &parent) != 0:
        x.trace_stays |= HEADER_BIT(HEADER_TRACESTATE)  # it belongs to a trace that is not known
        hex_write(x.plane.random(), parent.trace)
        hex_write(x.plane.random(), parent.trace + TRACE_SPAN_DIGITS)
        memset(parent.span, 48, TRACE_SPAN_DIGITS)
        parent.flags = TRACE_SAMPLED
    hex_write(x.plane.random(), span)
    ids = parent.trace[:TRACE_DIGITS] + b"-" + span[:TRACE_SPAN_DIGITS]
    x.trace_line = b"\r\ntraceparent: 00-%s-%02x" % (ids, parent.flags & TRACE_SAMPLED)
    if parent.flags & TRACE_SAMPLED:
        x.trace_text = b"\n" + ids + b"-" + parent.span[:TRACE_SPAN_DIGITS]
    return 0
