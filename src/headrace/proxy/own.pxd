"""Answers of the gateway's own: errors, which end a request, and pages."""

from libc.stdint cimport uint64_t

from headrace.proxy.exchange cimport Exchange


# What routing said, as an error; and the end of the time in the waiting room.
cdef int refuse_by(Exchange x, int verdict, uint64_t now_ns) except -1
cdef int refuse_waiting(Exchange x, uint64_t now_ns) except -1
# An error, and the end of the request; extra: header lines.
cdef int reply(Exchange x, int status, str code, str message, str param, double retry_after_s,
               bytes extra, bint close) except -1
# An answer, and nothing else.
cdef int write(Exchange x, int status, bytes content_type, bytes body, bytes extra,
               bint close) except -1
# A request whose head could not be read, so that it can be answered.
cdef int begin_unread(Exchange x) except -1
