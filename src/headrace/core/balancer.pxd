"""What the data plane, the library and the simulator call: one process's hands on the segment.
 A RouteRequest says what a policy may know of a request. `Balancer.route` picks a replica and opens
a Lease on it; the lease ends exactly once and gives back to the very cell it took from. No clock,
socket or logger: time comes in as now_ns (monotonic).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from headrace.core.fleet cimport cell, fleet, model_cell, pair_cell, process_block, row
from headrace.core.lb cimport (
    admit_rules, admitted, chash, claim, due, due_heap, lb_choice, lb_ops, lb_pool, lb_request,
    prefix_match,
    prefix_table, rates, rng, view,
)
from headrace.core.request cimport KIND_EMBED, KIND_GENERATE, RequestKind, RouteRequest
from headrace.core.segment cimport Segment


cpdef enum Verdict:
    ROUTED = 0
    NO_REPLICA = 1  # known model, nobody can serve it
    OVERLOADED = 2  # every eligible replica is above its limit
    GATEWAY_FULL = 3  # admission.max_concurrent_requests
    RETRY_DENIED = 4  # the budget is empty, or retry.max_retries is reached


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
    # of the prompt, thought to be in the replica's cache (fading with age)
    cdef readonly double hit_tokens
    cdef readonly int matched_tokens  # the same without the fading
    cdef readonly double score  # in the policy's unit
    cdef readonly double output_tokens  # expected, of one sequence

    cdef claim taken
    cdef int kind
    cdef int64_t max_tokens
    cdef bint estimated  # features can be held against usage
    cdef double features[12]
    cdef bint paused  # by us since the last read
    cdef bint alone  # no prefill was pending there at dispatch: a sample for the prefill rate
    cdef double queued_tokens  # pending and uncached at dispatch
    cdef double expected_s  # to the first token
    cdef double grown  # tokens booked for a plain request by the clock
    cdef int32_t due_place  # in the owner's heap; -1: not there
    cdef void *older  # decoding streams of a slot, in the order of their first tokens
    cdef void *newer

    # Bytes of the answer came, whatever they are.
    cdef void note_bytes(self, uint64_t now_ns) noexcept
    # A read with `count` content events; the first call is the first token.
    cdef void note_tokens(self, uint64_t now_ns, int count) noexcept
    # Reading was paused (back-pressure): the gap before the next read says nothing about the
    # replica.
    cdef void note_pause(self) noexcept
    # The four ends; -1 where usage does not say. Later calls do nothing.
    cdef void end_ok(self, uint64_t now_ns, int64_t prompt_tokens, int64_t completion_tokens,
                     int64_t cached_tokens) noexcept
    cdef void end_neutral(self, uint64_t now_ns) noexcept
    cdef void end_failed(self, uint64_t now_ns, int failure) noexcept
    cdef void end_cancelled(self, uint64_t now_ns) noexcept
    cdef bint _close(self, uint64_t now_ns) noexcept
    cdef void _first(self, uint64_t now_ns) noexcept
    cdef void _sample_first(self, uint64_t now_ns) noexcept
    cdef void _sample_gap(self, uint64_t now_ns, int count) noexcept
    cdef void _follow(self) noexcept
    cdef void _unfollow(self) noexcept
    cdef void _advance(self, uint64_t now_ns) noexcept


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


cdef class Balancer:
    cdef readonly Segment segment
    cdef readonly int process
    cdef fleet *base
    cdef process_block *block
    cdef readonly object settings
    cdef int policy
    cdef const lb_ops *ops
    cdef view *seen
    cdef rates *groups  # by group
    cdef double *typical  # by group: geometric mean of the slownesses
    cdef served **models  # by model id; NULL: unknown
    cdef uint64_t *ids  # hash of the replica's id, by slot
    cdef uint64_t ids_version
    cdef prefix_table table
    cdef prefix_match *match
    cdef admitted *room
    cdef double *turns  # scratch, by place of the pool
    cdef double *score
    cdef uint8_t *why
    cdef void **oldest  # decoding streams, by slot
    cdef void **newest
    cdef due_heap plain
    cdef rng chance
    cdef bint moved  # the set of slots in use has changed
    cdef uint64_t learned_ns
    cdef uint64_t renewals
    cdef double overload_ratio, load_factor, budget_ratio, min_per_s, backoff_s, jitter
    cdef int max_retries, gateways
    cdef int64_t max_concurrent_requests

    cdef int route(self, RouteRequest request, Lease lease, uint64_t now_ns)
    # Fails a lease and opens one elsewhere, within the budget; lease.start_at_ns says when to
    # begin.
    cdef int retry(self, RouteRequest request, Lease failed, Lease lease, int failure,
                   uint64_t now_ns)
    # What route would answer, without taking anything: for a waiting room.
    cdef int peek(self, RouteRequest request, uint64_t now_ns)
    cdef double retry_after_s(self, int model, uint64_t now_ns)
    # What time alone brings about (plain requests reach their predicted prefill end); route calls
    # it, an idle process may.
    cdef void tick(self, uint64_t now_ns) noexcept

    cdef void _renew(self, uint64_t now_ns)
    cdef void _use_slots(self)
    cdef int _admit(self, served *m, RouteRequest request, uint8_t *why) noexcept
    cdef int _verdict(self) noexcept
    cdef int _pool(self, served *m, RouteRequest request, lb_request *q, lb_pool *pool) except -1
    cdef int _build_ring(self, served *m) except -1
    cdef void _open(self, RouteRequest request, Lease lease, served *m, int place, double hit,
                    uint64_t now_ns) noexcept
    cdef bint _schedule(self, Lease lease, uint64_t at_ns) noexcept
    cdef int _choose(self, RouteRequest request, Lease lease, uint64_t now_ns, bint again) except -1
