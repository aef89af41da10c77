from libc.stdint cimport uint32_t, uint64_t

from headrace.core.fleet cimport fleet, hist, model_cell, pair_cell


cdef class Segment:
    """One mapping of the shared segment; see csrc/fleet.h for who may write what."""

    cdef fleet *base
    cdef readonly int fd
    cdef readonly int alarm_fd  # an eventfd; -1: none
    cdef readonly int processes
    cdef uint64_t bytes
    cdef uint64_t swept  # sets of the prefix table that the sweep under way has passed
    cdef unsigned char jumps[1024]  # generations of a slot that entries may stem from
    cdef unsigned char old_jumps[1024]  # those of before the sweep under way

    # Makes alarm_fd readable: a replica failed, and control should look at once.
    cpdef void alarm(self) noexcept
    cdef int _slot(self, int slot) except -1
    cdef int _forget_prefixes(self, int slot) except -1
    cdef void _capacities(self, uint32_t *capacity) noexcept
    cdef uint64_t _sweep(self, uint64_t start, uint64_t count)
    cdef object _hist(self, hist *h, int kind)
    # Over all processes; IndexError for numbers that no cell has.
    cdef int sum_model(self, int model, model_cell *total) except -1
    cdef int sum_pair(self, int pair, pair_cell *total) except -1
