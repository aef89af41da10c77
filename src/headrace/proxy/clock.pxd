"""The one clock of the data plane: monotonic, ns; a vDSO call of some 20 ns."""

from libc.stdint cimport uint64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline uint64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <uint64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef inline uint64_t unix_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <uint64_t>t.tv_sec * 1000000000 + t.tv_nsec
