from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from headrace.proxy.head cimport *

cdef uint64_t REQUEST_STAYS = (
    HEADERS_HOP_BY_HOP | HEADER_BIT(HEADER_HOST) | HEADER_BIT(HEADER_CONTENT_LENGTH)
    | HEADER_BIT(HEADER_EXPECT)
    | HEADER_BIT(HEADER_TRAILER) | HEADER_BIT(HEADER_REQUEST_ID) | HEADER_BIT(HEADER_FORWARDED_FOR)
    | HEADER_BIT(HEADER_FORWARDED_PROTO)
)
cdef uint64_t RESPONSE_STAYS = (
    HEADERS_HOP_BY_HOP | HEADER_BIT(HEADER_REQUEST_ID) | HEADER_BIT(HEADER_REPLICA)
)


cdef class Buffer:
    def __cinit__(self):
        self.data = NULL
        self.size = self.room = 0

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int need(self, size_t more) except -1:
        cdef char *data
        cdef size_t room
        if self.size + more <= self.room:
            return 0
        room = (self.size + more) * 2
        data = <char *>PyMem_Realloc(self.data, room)
        if data == NULL:
            raise MemoryError
        self.data, self.room = data, room
        return 0

    cdef int add(self, const char *data, size_t size) except -1:
        self.need(size)
        memcpy(self.data + self.size, data, size)
        self.size += size
        return 0

    cdef int add_bytes(self, bytes data) except -1:
        return self.add(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef int add_number(self, int64_t n) except -1:
        cdef char digits[24]
        cdef int at = 24
        while True:
            at -= 1
            digits[at] = 48 + n % 10
            n //= 10
            if n == 0:
                return self.add(digits + at, 24 - at)

    cdef bytes take(self):
        cdef bytes result = PyBytes_FromStringAndSize(self.data, self.size)
        self.size = 0
        return result


cdef int write_request(Buffer out, bytes head, request_head *r, uint64_t drop, bytes path_prefix,
                       bytes host_line,
                       bytes key_line, bytes request_id, bytes peer, bytes proto_line,
                       bytes trace_line, int64_t body_bytes) except -1:
    """The whole head for a replica."""
    cdef const char *h = PyBytes_AS_STRING(head)
    cdef uint64_t size = PyBytes_GET_SIZE(head)
    cdef uint64_t joined
    out.need(2 * size + 512)
    out.add(h + r.method.at, r.method.len)
    out.add(b" ", 1)
    out.add_bytes(path_prefix)
    out.add(h + r.target.at, r.target.len)
    out.add_bytes(host_line)
    out.add_bytes(key_line)
    out.size += head_copy(h, size, REQUEST_STAYS | drop, r.flags & HEAD_NOMINATES,
                          out.data + out.size)
    out.add(b"x-request-id: ", 14)
    out.add_bytes(request_id)
    out.add(b"\r\nx-forwarded-for: ", 19)
    if r.ids & HEADER_BIT(HEADER_FORWARDED_FOR):
        out.need(size + 256)
        joined = head_join(h, size, HEADER_FORWARDED_FOR, out.data + out.size)
        out.size += joined
        if joined:
            out.add(b", ", 2)
    out.add_bytes(peer)
    out.add_bytes(proto_line)
    out.add_bytes(trace_line)
    if body_bytes >= 0:
        out.add(b"\r\ncontent-length: ", 18)
        out.add_number(body_bytes)
    return out.add(b"\r\n\r\n", 4)


cdef int write_response(Buffer out, const char *head, uint64_t size, response_head *a, bint chunked,
                        bint close) except -1:
    """The head for the client."""
    cdef uint64_t drop = RESPONSE_STAYS
    if chunked:
        drop |= HEADER_BIT(HEADER_CONTENT_LENGTH)
    out.need(size + 128)
    out.add(b"HTTP/1.1 ", 9)
    out.add(head + a.reason.at, a.reason.len)
    out.add(b"\r\n", 2)
    out.size += head_copy(head, size, drop, a.flags & HEAD_NOMINATES, out.data + out.size)
    if chunked:
        out.add(b"transfer-encoding: chunked\r\n", 28)
    if close:
        out.add(b"connection: close\r\n", 19)
    return 0
