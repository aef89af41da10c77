"""Heads and body framing as Python sees them: for tests and fuzzing, and for nothing else."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memset

from headrace.proxy.head cimport *


def read_request(bytes head not None):
    """What a gateway reads in a request head; None if it refuses it."""
    cdef request_head r
    cdef head_names none
    memset(&none, 0, sizeof(none))
    if head_read_request(PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head), &none, &none, &r) != 0:
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
