"""Bytes of an answer on their way: looked at, put into the client's framing, ended honestly."""

from libc.stdint cimport uint64_t

from headrace.proxy.exchange cimport Exchange


cdef enum:
    NONE = -1
    STILL_UNKNOWN = -2


# Body bytes without their framing pass by.
cdef int watch(Exchange x, const char *data, size_t size, uint64_t now_ns) except -1
# Adds to plane.out what the client gets of data[start:at].
cdef int render(Exchange x, bytes data, size_t start, size_t at) except -1
# The failure that an answer begins with, NONE if it begins well, or STILL_UNKNOWN.
cdef int early_failure(Exchange x) noexcept
# The last bytes of a stream whose replica failed; None if its framing allows no honest end.
cdef bytes ending(Exchange x, int outcome)
