"""What the data plane, the library and the simulator call: one process's hands on the segment.

A RouteRequest says what a policy may know of a request. `Balancer.route` picks a replica and opens a Lease on it; the lease
ends exactly once and gives back to the very cell it took from. No clock, socket or logger: time comes in as now_ns (monotonic).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from headrace.core.fleet cimport cell, fleet, model_cell, pair_cell, process_block, row
from headrace.core.segment cimport Segment


cdef enum Verdict:
    ROUTED = 0
    NO_REPLICA = 1  # known model, nobody can serve it
    OVERLOADED = 2  # every eligible replica is above its limit
    GATEWAY_FULL = 3  # admission.max_concurrent_requests


cdef enum RequestKind:
    KIND_GENERATE = 0
    KIND_EMBED = 1  # no output tokens: the finish is the first token


cdef class RouteRequest:
    cdef public int model  # model id, see Balancer.set_model
    cdef public int kind
    cdef public bint stream
    cdef public int priority  # 0 system, 1 interactive, 2 default, 3 bulk
    cdef public int sequences  # n × batch
    cdef public int64_t max_tokens  # 0: not given
    cdef public double prompt_tokens  # estimate, of all sequences
    cdef public double features[12]  # of the estimate, for its calibration
    cdef public bint has_session
    cdef public uint64_t session  # hash of the session key
    cdef int prefix_count
    cdef uint64_t prefix[512]  # block keys, chained, already mixed with their root
    cdef int excluded_count
    cdef uint16_t excluded[8]  # slots not to be picked (tried already)

    cdef void clear(self) noexcept


cdef class Lease:
    cdef Balancer owner
    cdef readonly int slot
    cdef readonly int model
    cdef readonly int pair
    cdef readonly int group
    cdef readonly uint32_t generation  # of the replica
    cdef readonly int reason  # why this replica: index into REASONS
    cdef readonly bint open
    cdef readonly bint stream
    cdef readonly int sequences
    cdef readonly uint64_t dispatched_ns
    cdef readonly uint64_t start_at_ns  # a retry is to begin then (back-off)
    cdef readonly uint64_t first_ns  # first token; 0: none yet
    cdef readonly uint64_t last_ns
    cdef readonly int64_t generated  # content events or tokens seen
    cdef readonly double prompt_tokens
    cdef readonly double hit_tokens

    cdef void note_bytes(self, uint64_t now_ns) noexcept
    cdef void note_tokens(self, uint64_t now_ns, int count) noexcept
    cdef void end_ok(self, uint64_t now_ns, int64_t prompt_tokens, int64_t completion_tokens,
                     int64_t cached_tokens) noexcept
    cdef void end_neutral(self, uint64_t now_ns) noexcept
    cdef void end_failed(self, uint64_t now_ns, int failure) noexcept
    cdef void end_cancelled(self, uint64_t now_ns) noexcept
    cdef bint _close(self) noexcept


cdef class Balancer:
    cdef readonly Segment segment
    cdef readonly int process
    cdef fleet *base
    cdef process_block *block
    cdef readonly object settings
    cdef int policy
    cdef list models  # model id -> (group, slots, pairs) or None
    cdef uint64_t rotation
    cdef uint64_t random_state

    cdef int route(self, RouteRequest request, Lease lease, uint64_t now_ns)
    cdef int retry(self, RouteRequest request, Lease failed, Lease lease, int failure, uint64_t now_ns)
    cdef double retry_after_s(self, int model, uint64_t now_ns)
