from libc.stdint cimport uint32_t, uint64_t

from headrace.core.fleet cimport fleet, hist


cdef class Segment:
    """One mapping of the shared segment; see csrc/fleet.h for who may write what."""

    cdef fleet *base
    cdef readonly int fd
    cdef readonly int processes
    cdef uint64_t bytes

    cdef int _slot(self, int slot) except -1
    cdef object _hist(self, hist *h, int kind)
