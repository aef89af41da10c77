"""One client connection: reads requests strictly, one at a time, and knows when the client has
gone.
"""

from libc.stdint cimport int64_t, uint64_t

from headrace.proxy.head cimport framing
from headrace.proxy.plane cimport Plane
from headrace.proxy.wheel cimport Timed
from headrace.proxy.wire cimport Buffer

cdef class Downstream

from headrace.proxy.exchange cimport Exchange


cdef enum DownstreamPhase:
    DOWN_HEAD  # between requests, or inside a head
    DOWN_BODY
    DOWN_BUSY  # a request is being served
    DOWN_DISCARD  # answered before its body was read: the rest is thrown away
    DOWN_LINGER  # answered and half-closed: what still comes is thrown away
    DOWN_CLOSED


cdef class Downstream(Timed):
    cdef Plane plane
    cdef object transport
    cdef object send  # transport.write
    cdef int fd  # of the socket; -1 where bytes may not go straight to it
    cdef object feed  # feed_data of the parser
    cdef Exchange exchange
    cdef readonly int phase
    cdef bytes held  # part of a head, or pipelined requests
    cdef bytes peer
    cdef object good_key  # the last credential that was accepted here
    cdef framing f  # of the request's body
    cdef bytes whole  # a body of known length, being filled
    cdef size_t filled
    cdef Buffer pieces  # a chunked body
    cdef int parsed  # messages that the parser has seen to their end
    cdef bint served  # at least one request
    cdef bint reading_paused, write_blocked, consuming
    cdef uint64_t head_due_ns
    cdef uint64_t lingered
    cdef size_t unwritten  # at the last look: does the client read at all?

    cdef size_t _send_now(self, const char *data, size_t size) noexcept
    cdef int write(self, bytes data) except -1
    cdef int write_out(self, Buffer out) except -1  # and empties it
    cdef int next_request(self, bint close) except -1
    cdef int _go_on(self) except -1
    cdef int refuse_rest(self, bint close) except -1
    cdef int cut(self) except -1
    cdef int stop(self) except -1
    cdef void poll(self)
    cdef int _consume(self, bytes data) except -1
    cdef Py_ssize_t _take_head(self, bytes data, size_t at) except -1
    cdef Py_ssize_t _take_body(self, bytes data, size_t at) except -1
    cdef int _stash(self, bytes data) except -1
    cdef int _start(self, bytes head, bytes data, size_t end, size_t stop) except -1
    cdef int _fill(self, bytes data, size_t at, size_t stop) except -1
    cdef int _keep(self, bytes data, size_t at, size_t n) except -1
    cdef int _served(self, bytes body, uint64_t now) except -1
    cdef int _body_complete(self) except -1
    cdef int _bad(self) except -1
    cdef int _linger(self) except -1
    cdef bint _parses(self, bytes data, size_t start, size_t end)
    cdef int _pause(self) except -1
    cdef int _resume(self) except -1
