"""One attempt's claim on a replica. Balancer.route opens it; it ends exactly once and gives back to
the very cell it took from. What it sees of the answer is learned from.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from headrace.core.books cimport Books
from headrace.core.lb cimport claim


cdef class Lease:
    cdef Books books
    cdef readonly int slot
    cdef readonly int model
    cdef readonly int pair
    cdef readonly int group
    cdef readonly uint32_t generation  # of the replica
    cdef readonly int policy  # index into POLICIES
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


# Answers without a stream whose predicted prefill or next tokens are due move on.
cdef void advance_plain(Books books, uint64_t now_ns) noexcept
# A lease is to move on then; False where there is no memory for it.
cdef bint schedule(Lease lease, uint64_t at_ns) noexcept
