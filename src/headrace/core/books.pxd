"""What one process knows of the fleet: its view of the segment, what is learned, and who serves
which model. The balancer decides on it; leases learn into it. No clock, socket or logger: time
comes in as now_ns (monotonic).
"""

from libc.stdint cimport uint16_t, uint64_t

from headrace.core.fleet cimport fleet, process_block
from headrace.core.lb cimport chash, due_heap, prefix_table, rates, view
from headrace.core.segment cimport Segment


# A served model: its replicas by place, and what its policy remembers of them.
cdef struct served:
    int group
    int count
    uint16_t *slots
    uint16_t *pairs
    double *turns
    chash ring
    uint64_t ring_version
    double *speed  # slowness / weight, by slot
    uint64_t speed_version


cdef class Books:
    cdef readonly Segment segment
    cdef readonly int process
    cdef fleet *base
    cdef process_block *block
    cdef prefix_table table
    cdef view *seen
    cdef rates *groups  # by group
    cdef double *typical  # by group: geometric mean of the slownesses
    cdef served **models  # by model id; NULL: unknown
    cdef uint64_t *ids  # hash of the replica's id, by slot
    cdef uint64_t ids_version
    cdef bint moved  # the set of slots in use, or a row, has changed
    cdef uint64_t learned_ns
    cdef uint64_t renewals
    # Kept by the leases: decoding streams by slot, first and last, and answers without a stream.
    cdef void **oldest
    cdef void **newest
    cdef due_heap plain

    cdef served *served_by(self, int model) noexcept  # NULL: nobody
    # Brings view and rates up to date, if they are old.
    cdef void renew(self, uint64_t now_ns)
    # A model's ring, and its replicas' s / w by slot, up to date.
    cdef chash *ring_of(self, served *m) except NULL
    cdef const double *speeds_of(self, served *m) noexcept
    cdef void _use_slots(self)


cdef void *zeros(size_t n, size_t size) except NULL
