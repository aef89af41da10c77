"""One engine with the scheduler of vLLM V1, as a function of time.

Life of a sequence: waiting → running (prefill in chunks, then one token a step) → finished, aborted
or lost. A preempted one goes back to the front of the waiting list and computes everything again.

Life of a step: `begin_step` decides who computes what and how long that takes, `complete_step`
hands out the tokens. While only decoding goes on, steps follow each other without either
(`cruise`): per step only the clock moves, `settle` catches up with the rest before anyone looks.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from headrace.mock.kv_cache cimport KvCache


cdef struct sequence:
    int64_t request_id      # the caller's
    int64_t serial          # ours: tells a stale handle from a live one
    int32_t prompt_tokens
    int32_t output_tokens
    int32_t generated_tokens
    int32_t computed_tokens  # tokens whose KV is stored, or will be when the step ends
    int32_t scheduled_tokens  # computed in the current step
    int32_t cached_tokens    # prompt tokens found in the cache when first scheduled, -1: not yet
    int32_t state
    int32_t older            # neighbours in the waiting list, -1 at its ends
    int32_t newer
    int32_t blocks           # in block_list
    int32_t block_room
    int32_t registered       # leading blocks that are in the prefix table or need not be
    int32_t hashes           # in hash_list: those of the leading blocks of prompt and answer
    int32_t *block_list
    uint64_t *hash_list


cdef class Engine:
    # fixed
    cdef readonly KvCache kv
    cdef int64_t told_blocks    # of kv.taken_blocks
    cdef readonly int32_t block_tokens
    cdef readonly int32_t max_num_seqs
    cdef readonly int32_t max_num_batched_tokens
    cdef double base_ns, prefill_ns, decode_ns, context_ns, swap_ns
    cdef double noise_ratio
    cdef bint detailed
    # sequences
    cdef sequence *slots
    cdef int32_t slot_room
    cdef int32_t free_slot           # head of the list of unused slots, linked by `newer`
    cdef int32_t *running            # slots in the order of their admission
    cdef readonly int32_t running_count
    cdef int32_t waiting_head, waiting_tail
    cdef readonly int32_t waiting_count
    cdef int64_t next_serial
    # time
    cdef int64_t clock_ns            # everything before it has happened
    cdef bint in_step
    cdef int64_t step_end_ns
    cdef int64_t ready_ns            # when the next step may begin
    cdef int32_t cruise_left         # further steps after the current one that need no scheduling
    cdef int32_t cruise_done         # completed steps that `settle` has to catch up with
    cdef int64_t cruise_end_ns       # when the last step of the cruise ends, -1: to be computed
    cdef int64_t context_tokens      # read by the current step
    cdef uint64_t random_state
    # faults
    cdef double slow_factor, heat_from, heat_to
    cdef int64_t heat_start_ns, heat_ramp_ns
    cdef readonly bint frozen, alive
    cdef int64_t frozen_left_ns      # of the current step
    cdef readonly int64_t generation  # restarts so far
    # counters since the last restart
    cdef readonly int64_t prefix_queries_tokens, prefix_hits_tokens, preemptions
    cdef readonly int64_t prompt_tokens, generated_tokens, prefilled_tokens, steps, busy_ns
    cdef readonly int64_t finished, aborted
    cdef list events

    cdef int run_until(self, int64_t now_ns) except -1
    cdef int begin_step(self) except -1
    cdef int complete_step(self) except -1
    cdef int settle(self) except -1
    cdef int64_t step_duration(self, int64_t start_ns, int64_t prefill, int64_t decodes,
                               int64_t context, int64_t swapped, uint64_t *state) noexcept
    cdef void begin_at(self, int64_t start_ns, int64_t prefill, int64_t decodes, int64_t context,
                       int64_t swapped) noexcept
    cdef double heat_at(self, int64_t now_ns) noexcept
    cdef int32_t cruise_length(self) noexcept
    cdef int64_t cruise_end(self) noexcept
    cdef bint schedule_running(self, int32_t *budget, int64_t *swapped) except -1
    cdef int admit_waiting(self, int32_t budget) except -1
    cdef int32_t cached_blocks(self, sequence *s, int32_t *evictable) noexcept
    cdef bint grow(self, sequence *s, int32_t tokens) except -1
    cdef int register_blocks(self, sequence *s, int32_t tokens) except -1
    cdef int add_block(self, sequence *s, int32_t block) except -1
    cdef void free_blocks_of(self, sequence *s) noexcept
    cdef void preempt(self, int32_t slot) noexcept
    cdef void wait(self, int32_t slot, bint in_front) noexcept
    cdef void leave_waiting(self, int32_t slot) noexcept
    cdef void leave_running(self, int32_t slot) noexcept
    cdef void release(self, int32_t slot) noexcept
    cdef int32_t new_slot(self) except -1
    cdef int take_hashes(self, sequence *s, object hashes, int32_t hash_tokens) except -1
