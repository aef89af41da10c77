cimport cython
from libc.math cimport fmin
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport realloc

from headrace.core.books cimport Books
from headrace.core.fleet cimport *
from headrace.core.lb cimport *
from headrace.core.request cimport KIND_EMBED

POLICIES = tuple((<bytes>lb_ops_of(i).name).decode() for i in range(LB_POLICIES))
REASONS = tuple((<bytes>lb_reason_names[i]).decode() for i in range(LB_REASONS))

cdef enum:
    PLAIN_STEPS = 16  # of a plain request between two bookings of its tokens

cdef uint64_t UNCLEAN_AFTER_NS = 3_000_000_000
cdef uint64_t PLAIN_LEAST_STEP_NS = 20_000_000
cdef double UNCLEAN_WEIGHT = 0.3
cdef double MOST_TTFT = 4  # times the predicted one


# The collector may not take `books` away first: what is open is given back at the very end.
@cython.no_gc_clear
cdef class Lease:
    def __cinit__(self):
        self.due_place = -1

    def __dealloc__(self):
        # Only a lease that its owner forgot comes here open; what it holds must not outlive it.
        if self.open:
            self.end_cancelled(self.last_ns or self.dispatched_ns)

    cdef void note_bytes(self, uint64_t now_ns) noexcept:
        if self.open:
            atom_set_u64(&self.books.block.cells[self.slot].progress_ns, now_ns)

    cdef void note_tokens(self, uint64_t now_ns, int count) noexcept:
        if not self.open:
            return
        if self.first_ns == 0:
            self._first(now_ns)
        elif self.books.oldest[self.slot] == <void *>self and count > 0 and not self.paused:
            self._sample_gap(now_ns, count)
        self.paused = False
        self.generated += count
        self.last_ns = now_ns
        if self.stream:
            claim_grow(&self.taken, self.books.block, self.books.seen, count)
        atom_set_u64(&self.books.block.cells[self.slot].progress_ns, now_ns)

    cdef void note_pause(self) noexcept:
        self.paused = True

    cdef void _first(self, uint64_t now_ns) noexcept:
        self.first_ns = now_ns
        if not self.stream:
            return
        hist_record(&self.books.block.pairs[self.pair].ttft, HIST_TTFT,
                    (now_ns - self.start_at_ns) * 1e-9)
        self._sample_first(now_ns)
        claim_decode(&self.taken, self.books.block, self.books.seen, now_ns)
        if self.sequences == 1:
            self._follow()

    cdef void _sample_first(self, uint64_t now_ns) noexcept:
        """A prefill that found nothing pending took this long: a sample of the model's prefill
        rate.
        """
        cdef Books b = self.books
        cdef double ttft_s
        if not self.alone or now_ns < self.start_at_ns:
            return
        ttft_s = fmin((now_ns - self.start_at_ns) * 1e-9, MOST_TTFT * self.expected_s)
        learn_prefill(&b.block.groups[self.group], self.queued_tokens,
                      ttft_s / cost_slowness(b.seen, self.slot, b.typical[self.group]))

    cdef void _sample_gap(self, uint64_t now_ns, int count) noexcept:
        """One sample a step of the replica, from its oldest decoding stream here."""
        cdef Books b = self.books
        cdef view *v = b.seen
        cdef cell *c = &b.block.cells[self.slot]
        cdef double gap_s, decoding, weight
        if now_ns <= self.last_ns:
            return
        gap_s = (now_ns - self.last_ns) * 1e-9 / count
        decoding = v.decoding[self.slot] + v.foreign_seqs[self.slot]
        learn_gap(&b.block.groups[self.group], decoding,
                  gap_s / cost_slowness(v, self.slot, b.typical[self.group]))
        if v.seqs[self.slot] == v.decoding[self.slot] and v.disturbed_ns[self.slot] < self.last_ns:
            weight = 1
            atom_set_u64(&c.clean_at_ns, now_ns)
        elif now_ns - c.clean_at_ns > UNCLEAN_AFTER_NS:
            weight = UNCLEAN_WEIGHT
        else:
            return
        learn_slowness(c, self.generation, gap_s, learn_pace_s(&b.groups[self.group], decoding),
                       weight, b.typical[self.group], now_ns)

    cdef void _follow(self) noexcept:
        cdef Books b = self.books
        self.newer = NULL
        self.older = b.newest[self.slot]
        if self.older:
            (<Lease>self.older).newer = <void *>self
        else:
            b.oldest[self.slot] = <void *>self
        b.newest[self.slot] = <void *>self

    cdef void _unfollow(self) noexcept:
        cdef Books b = self.books
        if not self.stream or self.first_ns == 0 or self.sequences != 1:
            return
        if self.older:
            (<Lease>self.older).newer = self.newer
        else:
            b.oldest[self.slot] = self.newer
        if self.newer:
            (<Lease>self.newer).older = self.older
        else:
            b.newest[self.slot] = self.older
        self.older = self.newer = NULL

    cdef void _advance(self, uint64_t now_ns) noexcept:
        """A plain request shows nothing until its end: it decodes from its predicted first token
        on, at the pace of its replica.
        """
        cdef Books b = self.books
        cdef double step_s, tokens, most = self.output_tokens * self.sequences
        cdef uint64_t began_ns = self.start_at_ns + <uint64_t>(self.expected_s * 1e9)
        claim_decode(&self.taken, b.block, b.seen, now_ns)
        step_s = learn_pace_s(&b.groups[self.group], view_load(b.seen, self.slot)) * cost_slowness(
            b.seen, self.slot, b.typical[self.group])
        tokens = fmin((now_ns - fmin(began_ns, now_ns)) * 1e-9 / step_s * self.sequences, most)
        if tokens > self.grown:
            claim_grow(&self.taken, b.block, b.seen, tokens - self.grown)
            self.grown = tokens
        if self.grown < most:
            schedule(self, now_ns + max(PLAIN_LEAST_STEP_NS,
                                        <uint64_t>(PLAIN_STEPS * step_s * 1e9)))

    cdef bint _close(self, uint64_t now_ns) noexcept:
        if not self.open:
            return False
        self.open = False
        if self.due_place >= 0:
            due_remove(&self.books.plain, self.due_place)
        self._unfollow()
        claim_close(&self.taken, self.books.block, self.books.seen, now_ns)
        return True

    cdef void end_ok(self, uint64_t now_ns, int64_t prompt_tokens, int64_t completion_tokens,
                     int64_t cached_tokens) noexcept:
        cdef Books b = self.books
        cdef cell *c
        cdef int64_t output
        if not self._close(now_ns):
            return
        c = &b.block.cells[self.slot]
        atom_add_u64(&c.succeeded, 1)
        atom_set_u64(&c.ok_ns, now_ns)
        atom_set_u32(&c.fail_streak, 0)
        output = completion_tokens
        if output < 0:
            output = self.generated if self.stream else -1
        atom_add_u64(&c.completed_tokens, max(output, 0))
        if self.estimated and prompt_tokens > 0:
            learn_prompt(&b.block.groups[self.group], self.features, prompt_tokens)
        if self.kind == KIND_EMBED:
            self._sample_first(now_ns)
        elif output >= 0:
            learn_finish(&b.block.groups[self.group], self.max_tokens,
                         <double>output / self.sequences)
            if not b.seen.flags[self.slot] & ROW_FOLLOWED:
                prefix_advance(&b.table, self.slot, <uint32_t>(output // PREFIX_BLOCK_TOKENS))

    cdef void end_neutral(self, uint64_t now_ns) noexcept:
        if self._close(now_ns):
            atom_add_u64(&self.books.block.cells[self.slot].neutral, 1)

    cdef void end_failed(self, uint64_t now_ns, int failure) noexcept:
        cdef cell *c
        if not self._close(now_ns):
            return
        c = &self.books.block.cells[self.slot]
        atom_add_u64(&c.failures[failure], 1)
        if failure != FAILURE_OVERLOADED and failure != FAILURE_STALE:
            atom_add_u32(&c.fail_streak, 1)
            atom_set_u64(&c.failed_ns, now_ns)

    cdef void end_cancelled(self, uint64_t now_ns) noexcept:
        if self._close(now_ns):
            atom_add_u64(&self.books.block.cells[self.slot].cancelled, 1)

    # ---- for the library and for people

    def tokens(self, uint64_t now_ns, int count=1):
        self.note_tokens(now_ns, count)

    def pause(self):
        self.note_pause()

    def finish(self, uint64_t now_ns, int64_t prompt_tokens=-1, int64_t completion_tokens=-1,
               int64_t cached_tokens=-1):
        self.end_ok(now_ns, prompt_tokens, completion_tokens, cached_tokens)

    def fail(self, uint64_t now_ns, int failure):
        if not 0 <= failure < FAILURES:
            raise ValueError(f"failure: wanted {failure}, have 0 to {FAILURES - 1}")
        self.end_failed(now_ns, failure)

    def neutral(self, uint64_t now_ns):
        self.end_neutral(now_ns)

    def cancel(self, uint64_t now_ns):
        self.end_cancelled(now_ns)

    @property
    def decision(self):
        """The text of x-headrace-decision."""
        return (f"policy={POLICIES[self.policy]}; reason={REASONS[self.reason]}; "
                f"prompt_tokens={self.prompt_tokens:.0f}; matched_tokens={self.matched_tokens}; "
                f"score={self.score:.6g}")


cdef void advance_plain(Books books, uint64_t now_ns) noexcept:
    cdef due *first = due_first(&books.plain, now_ns)
    cdef Lease lease
    while first != NULL:
        lease = <Lease>first.what
        due_remove(&books.plain, lease.due_place)
        lease._advance(now_ns)
        first = due_first(&books.plain, now_ns)


cdef bint schedule(Lease lease, uint64_t at_ns) noexcept:
    cdef due_heap *plain = &lease.books.plain
    cdef due entry
    cdef due *grown
    if plain.count == plain.room:
        grown = <due *>realloc(plain.entries, (2 * plain.room + 64) * sizeof(due))
        if grown == NULL:
            return False
        plain.entries = grown
        plain.room = 2 * plain.room + 64
    entry.at_ns, entry.what, entry.place = at_ns, <void *>lease, &lease.due_place
    return due_push(plain, entry) == 0
