"""Heads and body framing as Python sees them: for tests and fuzzing, and for nothing else."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memset

from headrace.proxy.head cimport *
from headrace.proxy.wire cimport Buffer, write_request, write_response


cdef bint _reads(bytes head, request_head *r):
    """Whether a gateway without configured names takes the head."""
    cdef head_names none
    memset(&none, 0, sizeof(none))
    return head_read_request(PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head), &none, &none, r) == 0


def read_request(bytes head not None):
    """What a gateway reads in a request head; None if it refuses it."""
    cdef request_head r
    if not _reads(head, &r):
        return None
    return {
        "method": head[r.method.at:r.method.at + r.method.len],
        "target": head[r.target.at:r.target.at + r.target.len],
        "minor": r.minor,
        "content_length": r.content_length,
        "chunked": bool(r.flags & HEAD_CHUNKED),
        "close": bool(r.flags & HEAD_CLOSE),
        "lines": r.lines,
    }


cdef Buffer OUT = Buffer()


def rewrite_request(bytes head not None):
    """The head that a replica gets, with the lines of an unnamed one; None if it is refused."""
    cdef request_head r
    if not _reads(head, &r):
        return None
    write_request(OUT, head, &r, 0, b"", b" HTTP/1.1\r\nhost: replica:8000\r\n", b"",
                  b"0123456789abcdef", b"10.0.0.1", b"\r\nx-forwarded-proto: http", b"",
                  r.content_length)
    return OUT.take()


def rewrite_response(bytes head not None):
    """The head that a client gets, without the lines of our own; None if it is refused."""
    cdef response_head a
    if head_read_response(PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head), &a) != 0:
        return None
    write_response(OUT, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head), &a,
                   a.flags & HEAD_CHUNKED != 0, False)
    return OUT.take()


cdef class ChunkedBody:
    """A chunked body fed in pieces."""

    cdef framing f
    cdef readonly bytes payload

    def __init__(self):
        framing_start(&self.f, FRAMING_CHUNKED, 0)
        self.payload = b""

    def feed(self, bytes data not None):
        """Takes what belongs to the body; returns the bytes taken."""
        cdef size_t at = 0
        cdef size_t size = PyBytes_GET_SIZE(data)
        cdef size_t n
        cdef const char *payload
        while at < size and not self.f.done and not self.f.bad:
            at += framing_next(&self.f, PyBytes_AS_STRING(data) + at, size - at, &payload, &n)
            self.payload += payload[:n]
        return at

    @property
    def done(self):
        return bool(self.f.done)

    @property
    def bad(self):
        return bool(self.f.bad)

    def closing(self):
        """What brings a body cut here to a chunk border: (before, newlines, after), or None."""
        cdef const char *before
        cdef const char *after
        cdef unsigned long long newlines
        if framing_close(&self.f, &before, <uint64_t *>&newlines, &after) != 0:
            return None
        return <bytes>before, newlines, <bytes>after
