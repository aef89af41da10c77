"""Second attempts: which failures deserve one, and how it begins."""

from libc.stdint cimport uint64_t

from headrace.proxy.exchange cimport Exchange


# Begins an attempt on another replica if cause, count and budget allow it; the lease has ended then
# in any case.
cdef bint elsewhere(Exchange x, int failure, uint64_t now_ns) except -1
# A pooled connection was closed under the request: once more over a fresh one.
cdef bint resend(Exchange x, uint64_t now_ns) except -1
