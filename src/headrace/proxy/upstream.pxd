"""One connection to a replica: connects, carries one exchange at a time, and says when it cannot
carry another.
"""

from libc.stdint cimport int64_t, uint64_t

from headrace.proxy.wheel cimport Timed
from headrace.proxy.wire cimport Buffer

cdef class Upstream

from headrace.proxy.exchange cimport Exchange
from headrace.proxy.pool cimport Pool


cdef enum UpstreamPhase:
    UP_CONNECTING
    UP_IDLE
    UP_HEAD  # a request was sent, its head is awaited
    UP_BODY
    UP_CLOSED


cdef class Upstream(Timed):
    cdef Pool pool
    cdef Exchange exchange  # whom it works for
    cdef object transport
    cdef object task  # of the connect
    cdef object write  # of the transport
    cdef object feed  # of a parser; None when the last message left it in the middle
    cdef bytes held  # of a head that is not complete
    cdef int phase
    cdef bint reused
    cdef bint parsing_body  # the parser counts the body along, so that it can be used again
    cdef bint paused
    cdef bint write_blocked  # the transport holds part of a request back
    cdef bint direct  # no TLS in between: bytes may go straight to the socket
    cdef uint64_t idle_since_ns
    cdef int fd  # of the socket

    cdef void connect(self, uint64_t now_ns)
    cdef int send(self, Exchange exchange, Buffer head, bytes body) except -1
    cdef bint is_usable(self)
    cdef void release(self, uint64_t now_ns)
    cdef bint has_unsent(self)
    cdef void close(self)
    cdef void pause(self)
    cdef void resume(self)
    cdef int _read_head(self, bytes data) except -1
    cdef int _accept_head(self, bytes data, size_t size) except -1
    cdef bint _parses(self, bytes data, size_t size, bint whole)
    cdef void _broke(self, int failure)
