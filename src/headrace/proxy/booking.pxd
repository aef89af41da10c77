"""What is written down of a request: outcome, counters, histograms, the access record. Nothing here
changes its course.
"""

from libc.stdint cimport uint64_t

from headrace.proxy.exchange cimport Exchange


cdef int decided(Exchange x) except -1
cdef int sent(Exchange x, uint64_t now_ns) except -1
cdef int tokens(Exchange x, int events, uint64_t now_ns) noexcept
# Ends the lease of a complete response by what it says; returns the outcome.
cdef int judge(Exchange x, uint64_t now_ns) except -1
cdef int ended(Exchange x, int outcome, int status, uint64_t now_ns) except -1
cdef bytes decision_line(Exchange x)
