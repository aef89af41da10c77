"""Heads on their way out, in both directions, by the header rules of the contract; and the buffer
they are built in.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t

from headrace.proxy.head cimport request_head, response_head


cdef class Buffer:
    """Bytes being put together; one for a whole process, because nothing is built across two
    callbacks.
    """

    cdef char *data
    cdef size_t size
    cdef size_t room

    cdef int need(self, size_t more) except -1
    cdef int add(self, const char *data, size_t size) except -1
    cdef int add_bytes(self, bytes data) except -1
    cdef int add_number(self, int64_t n) except -1
    cdef bytes take(self)


# drop: ids of headers that stay here; key_line: the replica's own Authorization, or empty; peer:
# the client's address; body_bytes -1: no body.
cdef int write_request(Buffer out, bytes head, request_head *r, uint64_t drop, bytes path_prefix,
                       bytes host_line,
                       bytes key_line, bytes request_id, bytes peer, bytes proto_line,
                       bytes trace_line, int64_t body_bytes) except -1
# Without the empty line; chunked: the body follows in chunks.
cdef int write_response(Buffer out, const char *head, uint64_t size, response_head *a, bint chunked,
                        bint close) except -1


# data[start:end] without the slice object that Python would make.
cdef inline bytes part(bytes data, size_t start, size_t end):
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + start, end - start)
