"""What is decided on a request's head alone: path, key, method, size, room. Refusals come before
the body is read.
"""

from libc.stdint cimport uint64_t

from headrace.proxy.exchange cimport Exchange


# 0: the request is to be routed; 1: it has been answered
cdef int check(Exchange x, uint64_t now_ns) except -1
# Header lines that allow the page of a request's Origin to read the answer; empty if it may not.
cdef bytes cors_lines(Exchange x)
