"""Deadlines of all connections of a process, on one coarse wheel.
 A connection changes its deadline with every message and reaches it almost never. So a deadline
that moves later costs one store: the entry stays in its slot, and is put further on when the slot
comes round. Only one that moves before its slot is taken out.
"""

from libc.stdint cimport uint64_t


cdef extern from *:
    """
    #define WHEEL_SLOTS 512
    #define TICK_NS 50000000ULL
    #define NEVER UINT64_MAX
    """
    const uint64_t WHEEL_SLOTS
    const uint64_t TICK_NS
    const uint64_t NEVER


cdef class Timed:
    """Something with a deadline; a member of the wheel from its first deadline until `forget`."""

    cdef uint64_t due_ns  # NEVER: none; changed by Wheel.set only
    cdef uint64_t slot_tick  # where it waits
    cdef Timed before  # None: in no slot
    cdef Timed after

    cdef void on_due(self, uint64_t now_ns)


cdef class Wheel:
    cdef list slots  # of Timed: heads of circular lists
    cdef uint64_t tick  # the last one that was handled

    cdef void set(self, Timed entry, uint64_t due_ns)
    cdef void forget(self, Timed entry)
    cdef void advance(self, uint64_t now_ns)
    cdef void _link(self, Timed entry)
    cdef void _unlink(self, Timed entry)
    cdef void _run(self, Timed entry, uint64_t now_ns)
