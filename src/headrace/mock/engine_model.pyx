"""One engine with the scheduler of vLLM V1, as a function of time; see engine_model.pxd."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

from headrace.mock.kv_cache cimport KvCache

SCHEDULED, FIRST_TOKEN, TOKENS, FINISHED = 0, 1, 2, 3
NEVER_NS = (1 << 63) - 1

cdef int EVENT_SCHEDULED = 0, EVENT_FIRST = 1, EVENT_TOKENS = 2, EVENT_FINISHED = 3
cdef int64_t NEVER = <int64_t>((<uint64_t>1 << 63) - 1)
cdef int UNUSED = 0, WAITING = 1, RUNNING = 2
cdef int SLOT_BITS = 24


cdef inline uint64_t next_random(uint64_t *state) noexcept:
    """SplitMix64 (Steele, Lea, Flood 2014)."""
    state[0] += <uint64_t>0x9E3779B97F4A7C15
    return mix(state[0])


cdef inline uint64_t mix(uint64_t z) noexcept:
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)


cdef inline double unit(uint64_t z) noexcept:
    return <double>(z >> 11) * (1.0 / 9007199254740992.0)


def derived_hash(uint64_t value, int64_t i):
    return mix(value + <uint64_t>i)


cdef class Engine:

    def __cinit__(self, *, double base_ns, double prefill_ns, double decode_ns, double context_ns,
                  int64_t kv_tokens, int32_t block_tokens=16, int32_t max_num_seqs=256,
                  int32_t max_num_batched_tokens=8192, double swap_ns=0.0, double noise_ratio=0.0,
                  uint64_t seed=0, bint detailed=False):
        cdef int64_t blocks = kv_tokens // block_tokens - 1  # vLLM keeps one block for itself
        if not 1 <= blocks < (<int64_t>1 << 31):
            raise ValueError(f"{kv_tokens} tokens of KV: {blocks} blocks to use, wanted 1 or more")
        if max_num_seqs < 1 or max_num_batched_tokens < max_num_seqs:
            raise ValueError("wanted 1 <= max_num_seqs <= max_num_batched_tokens")
        if not (0.0 <= noise_ratio < 1.0 and base_ns + prefill_ns > 0):
            raise ValueError("wanted 0 <= noise_ratio < 1 and steps that take time")
        self.kv = KvCache(<int32_t>blocks)
        self.block_tokens = block_tokens
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.base_ns, self.prefill_ns, self.decode_ns = base_ns, prefill_ns, decode_ns
        self.context_ns, self.swap_ns, self.noise_ratio = context_ns, swap_ns, noise_ratio
        self.detailed = detailed
        self.random_state = seed
        self.free_slot = self.waiting_head = self.waiting_tail = -1
        self.slow_factor = self.heat_from = self.heat_to = 1.0
        self.alive = True
        self.cruise_end_ns = -1
        self.events = []
        self.running = <int32_t *>malloc(<size_t>max_num_seqs * sizeof(int32_t))
        if not self.running:
            raise MemoryError

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.slot_room):
            free(self.slots[i].block_list)
            free(self.slots[i].hash_list)
        free(self.slots)
        free(self.running)

    # requests

    def submit(self, int64_t now_ns, int64_t request_id, int32_t prompt_tokens,
               int32_t output_tokens, hashes=None, int32_t hash_tokens=0):
        cdef int64_t most = <int64_t>prompt_tokens + output_tokens - 1
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError(f"{prompt_tokens} and {output_tokens} tokens, wanted 1 or more each")
        if most > <int64_t>self.kv.capacity_blocks * self.block_tokens:
            raise ValueError(
                f"{most} tokens do not fit into {self.kv.capacity_blocks} blocks"
                f" of {self.block_tokens} tokens")
        if not self.alive:
            raise RuntimeError("the engine is dead")
        self.run_until(now_ns)
        cdef int32_t slot = self.new_slot()
        cdef sequence *s = &self.slots[slot]
        s.request_id = request_id
        s.prompt_tokens, s.output_tokens = prompt_tokens, output_tokens
        s.cached_tokens = -1
        if hashes is not None:
            self.take_hashes(s, hashes, hash_tokens or self.block_tokens)
        if not self.in_step and self.running_count + self.waiting_count == 0:
            self.ready_ns = now_ns
        self.wait(slot, False)
        if self.running_count < self.max_num_seqs:
            self.cruise_left = 0  # the next step can admit it
            self.cruise_end_ns = -1
        return s.serial << SLOT_BITS | slot

    def abort(self, int64_t now_ns, int64_t handle):
        self.run_until(now_ns)
        cdef int32_t slot = handle & ((1 << SLOT_BITS) - 1)
        if slot >= self.slot_room or self.slots[slot].state == UNUSED:
            return False
        if self.slots[slot].serial != handle >> SLOT_BITS:
            return False
        if self.slots[slot].state == WAITING:
            self.leave_waiting(slot)
        else:
            self.settle()
            self.cruise_left = 0
            self.cruise_end_ns = -1
            self.leave_running(slot)
        self.release(slot)
        self.aborted += 1
        return True

    def next_event_ns(self):
        if self.frozen or not self.alive:
            return NEVER
        if not self.in_step:
            if self.running_count + self.waiting_count == 0:
                return NEVER
            self.begin_step()
        return self.cruise_end() if self.cruise_left else self.step_end_ns

    def advance(self, int64_t now_ns):
        self.run_until(now_ns)
        cdef list events = self.events
        if events:
            self.events = []
        return events

    # state

    def kv_usage_ratio(self, int64_t now_ns):
        self.run_until(now_ns)
        self.settle()
        return 1.0 - <double>self.kv.free_blocks() / self.kv.capacity_blocks

    def cached_prefix_tokens(self, hashes, int32_t prompt_tokens, int32_t hash_tokens=0):
        cdef sequence probe
        cdef int32_t evictable
        memset(&probe, 0, sizeof(sequence))
        probe.prompt_tokens = prompt_tokens
        self.settle()
        try:
            self.take_hashes(&probe, hashes, hash_tokens or self.block_tokens)
            return self.cached_blocks(&probe, &evictable) * self.block_tokens
        finally:
            free(probe.hash_list)

    def journal_blocks(self):
        cdef list found = self.kv.journal
        cdef int64_t taken = self.kv.taken_blocks - self.told_blocks
        self.told_blocks += taken
        self.kv.journal = []
        return found or [], taken * self.block_tokens

    # faults

    def set_slow(self, int64_t now_ns, double factor):
        if not factor > 0.0:
            raise ValueError(f"slow factor {factor}, wanted more than 0")
        self.run_until(now_ns)
        self.slow_factor = factor
        self.cruise_end_ns = -1

    def set_heat(self, int64_t now_ns, double factor, int64_t ramp_ns):
        if not factor > 0.0 or ramp_ns < 1:
            raise ValueError(f"heat factor {factor} within {ramp_ns} ns, wanted more than 0")
        self.run_until(now_ns)
        self.heat_from = self.heat_at(now_ns)
        self.heat_to, self.heat_start_ns, self.heat_ramp_ns = factor, now_ns, ramp_ns
        self.cruise_end_ns = -1

    def freeze(self, int64_t now_ns):
        self.run_until(now_ns)
        if not self.frozen:
            self.frozen = True
            self.frozen_left_ns = self.step_end_ns - now_ns

    def unfreeze(self, int64_t now_ns):
        if self.frozen:
            self.run_until(now_ns)
            self.frozen = False
            self.step_end_ns = now_ns + self.frozen_left_ns
            self.ready_ns = now_ns
            self.cruise_end_ns = -1

    def kill(self, int64_t now_ns):
        cdef int32_t slot
        cdef list lost = []
        self.run_until(now_ns)
        for slot in range(self.slot_room):
            if self.slots[slot].state != UNUSED:
                lost.append((self.slots[slot].serial, self.slots[slot].request_id))
                self.slots[slot].blocks = 0
                self.release(slot)
        self.kv.clear()
        self.running_count = self.waiting_count = 0
        self.waiting_head = self.waiting_tail = -1
        self.in_step = self.frozen = self.alive = False
        self.cruise_left = self.cruise_done = 0
        return [request_id for _, request_id in sorted(lost)]

    def restart(self, int64_t now_ns):
        cdef list lost = self.kill(now_ns)
        self.alive = True
        self.generation += 1
        self.slow_factor = self.heat_from = self.heat_to = 1.0
        self.prefix_queries_tokens = self.prefix_hits_tokens = self.preemptions = 0
        self.prompt_tokens = self.generated_tokens = self.prefilled_tokens = 0
        self.steps = self.busy_ns = self.finished = self.aborted = 0
        return lost

    # steps

    cdef int run_until(self, int64_t now_ns) except -1:
        """Complete every step that ends at `now_ns` or before."""
        if now_ns < self.clock_ns:
            raise ValueError(f"time {now_ns} ns lies before {self.clock_ns} ns")
        self.clock_ns = now_ns
        if self.frozen or not self.alive:
            return 0
        while True:
            if not self.in_step:
                if self.ready_ns >= now_ns or self.running_count + self.waiting_count == 0:
                    return 0
                self.begin_step()
            if self.step_end_ns > now_ns:
                return 0
            if self.cruise_left and self.step_end_ns < now_ns:  # at now_ns others may yet join in
                self.cruise_left -= 1
                self.cruise_done += 1
                self.generated_tokens += self.running_count
                self.context_tokens += self.running_count
                self.begin_at(self.step_end_ns, 0, self.running_count, self.context_tokens, 0)
            else:
                self.settle()
                self.complete_step()

    cdef int begin_step(self) except -1:
        cdef int32_t budget = self.max_num_batched_tokens, i
        cdef int64_t prefill = 0, decodes = 0, context = 0, swapped = 0
        cdef sequence *s
        if not self.schedule_running(&budget, &swapped):
            self.admit_waiting(budget)
        for i in range(self.running_count):
            s = &self.slots[self.running[i]]
            if s.generated_tokens and s.scheduled_tokens == 1:
                decodes += 1
                context += s.computed_tokens
            else:
                prefill += s.scheduled_tokens
        self.context_tokens = context
        self.prefilled_tokens += prefill
        self.begin_at(self.ready_ns, prefill, decodes, context, swapped)
        self.in_step = True
        self.cruise_left = self.cruise_done = 0
        self.cruise_end_ns = -1
        if decodes == self.running_count and not self.detailed:
            self.cruise_left = self.cruise_length()
        return 0

    cdef void begin_at(self, int64_t start_ns, int64_t prefill, int64_t decodes, int64_t context,
                       int64_t swapped) noexcept:
        cdef int64_t took_ns = self.step_duration(
            start_ns, prefill, decodes, context, swapped, &self.random_state)
        self.step_end_ns = start_ns + took_ns
        self.busy_ns += took_ns
        self.steps += 1

    cdef int64_t step_duration(self, int64_t start_ns, int64_t prefill, int64_t decodes,
                               int64_t context, int64_t swapped, uint64_t *state) noexcept:
        cdef double ns = (
            self.base_ns + self.prefill_ns * prefill + self.decode_ns * decodes
            + self.context_ns * context + self.swap_ns * swapped)
        cdef double first, second
        ns *= self.slow_factor
        if self.heat_to != 1.0 or self.heat_from != 1.0:
            ns *= self.heat_at(start_ns)
        if self.noise_ratio > 0.0:  # triangular, mean 1
            first = unit(next_random(state))
            second = unit(next_random(state))
            ns *= 1.0 + self.noise_ratio * (first - second)
        return <int64_t>(ns + 0.5) if ns >= 0.5 else 1

    cdef double heat_at(self, int64_t now_ns) noexcept:
        cdef int64_t passed = now_ns - self.heat_start_ns
        if passed >= self.heat_ramp_ns:
            return self.heat_to
        return self.heat_from + (self.heat_to - self.heat_from) * passed / self.heat_ramp_ns

    cdef bint schedule_running(self, int32_t *budget, int64_t *swapped) except -1:
        """One token, or the next chunk, for each running sequence; true if one was preempted."""
        cdef int32_t i = 0, tokens, last
        cdef bint preempted = False
        cdef sequence *s
        while i < self.running_count:
            s = &self.slots[self.running[i]]
            tokens = s.prompt_tokens + s.generated_tokens - s.computed_tokens
            tokens = min(tokens, budget[0])
            while tokens and not self.grow(s, tokens):
                last = self.running[self.running_count - 1]
                preempted = True
                swapped[0] += self.slots[last].computed_tokens
                self.preempt(last)
                if i == self.running_count:  # it gave way to the others itself
                    return True
            s.scheduled_tokens = tokens
            budget[0] -= tokens
            i += 1
        return preempted

    cdef int admit_waiting(self, int32_t budget) except -1:
        """Waiting sequences in their order, until one does not fit."""
        cdef int32_t slot, hits, evictable, total, tokens, wanted, i
        cdef sequence *s
        while self.waiting_count and budget and self.running_count < self.max_num_seqs:
            slot = self.waiting_head
            s = &self.slots[slot]
            total = s.prompt_tokens + s.generated_tokens
            hits = self.cached_blocks(s, &evictable)
            tokens = min(total - hits * self.block_tokens, budget)
            wanted = hits * self.block_tokens + tokens
            wanted = (wanted + self.block_tokens - 1) // self.block_tokens - hits
            if wanted + evictable > self.kv.free_blocks():
                return 0
            self.leave_waiting(slot)
            for i in range(hits):
                self.add_block(s, self.kv.lookup(s.hash_list[i]))
                self.kv.take_cached(s.block_list[i])
            s.registered = hits
            s.computed_tokens = hits * self.block_tokens
            self.grow(s, tokens)
            s.scheduled_tokens = tokens
            s.state = RUNNING
            budget -= tokens
            self.running[self.running_count] = slot
            self.running_count += 1
            if s.cached_tokens < 0:
                s.cached_tokens = s.computed_tokens
                self.prefix_queries_tokens += s.prompt_tokens
                self.prefix_hits_tokens += s.cached_tokens
                self.prompt_tokens += s.prompt_tokens
                if self.detailed:
                    self.events.append(
                        (self.ready_ns, EVENT_SCHEDULED, s.request_id, s.cached_tokens))
        return 0

    cdef int complete_step(self) except -1:
        cdef int64_t end_ns = self.step_end_ns
        cdef int32_t i, slot, kept = 0, count = self.running_count
        cdef sequence *s
        for i in range(count):
            slot = self.running[i]
            s = &self.slots[slot]
            s.computed_tokens += s.scheduled_tokens
            if s.scheduled_tokens and (
                    s.computed_tokens == s.prompt_tokens + s.generated_tokens):
                s.generated_tokens += 1
                self.generated_tokens += 1
                if s.generated_tokens == 1:
                    self.events.append((end_ns, EVENT_FIRST, s.request_id, s.cached_tokens))
                if self.detailed:
                    self.events.append((end_ns, EVENT_TOKENS, s.request_id, s.generated_tokens))
                if s.generated_tokens == s.output_tokens:
                    self.events.append((end_ns, EVENT_FINISHED, s.request_id, s.generated_tokens))
                    self.finished += 1
                    self.release(slot)
                    continue
            s.scheduled_tokens = 0
            self.running[kept] = slot
            kept += 1
        self.running_count = kept
        self.in_step = False
        self.ready_ns = end_ns
        return 0

    # cruise

    cdef int32_t cruise_length(self) noexcept:
        """How many steps may follow the current one before anyone finishes, is admitted or runs
        out of blocks. All running sequences are decoding, and stay so."""
        cdef int32_t length = 0, i, free_blocks = self.kv.free_blocks()
        cdef int64_t wanted, stored
        cdef sequence *s
        if self.waiting_count and self.running_count < self.max_num_seqs:
            return 0
        for i in range(self.running_count):
            s = &self.slots[self.running[i]]
            if i == 0 or s.output_tokens - s.generated_tokens - 1 < length:
                length = s.output_tokens - s.generated_tokens - 1
        while length:
            wanted = 0
            for i in range(self.running_count):
                s = &self.slots[self.running[i]]
                stored = s.computed_tokens + 1 + length
                wanted += (stored + self.block_tokens - 1) // self.block_tokens - s.blocks
            if wanted <= free_blocks:
                break
            length //= 2
        return length

    cdef int64_t cruise_end(self) noexcept:
        cdef uint64_t state = self.random_state
        cdef int64_t end_ns = self.step_end_ns, context = self.context_tokens
        cdef int32_t _step
        if self.cruise_end_ns < 0:
            for _step in range(self.cruise_left):
                context += self.running_count
                end_ns += self.step_duration(end_ns, 0, self.running_count, context, 0, &state)
            self.cruise_end_ns = end_ns
        return self.cruise_end_ns

    cdef int settle(self) except -1:
        """Give the sequences what the completed steps of the cruise brought them, and the blocks
        that these steps and the current one took, in the order in which they took them."""
        cdef int32_t _step, i, done = self.cruise_done
        cdef sequence *s
        self.cruise_done = 0
        for _step in range(done):
            for i in range(self.running_count):
                s = &self.slots[self.running[i]]
                s.computed_tokens += 1
                s.generated_tokens += 1
                self.grow(s, 1)
        return 0

    # blocks

    cdef int32_t cached_blocks(self, sequence *s, int32_t *evictable) noexcept:
        """Leading blocks of `s` that are stored; at least the last token is always computed. Of
        them, `evictable` are not in use."""
        cdef int32_t most = (s.prompt_tokens + s.generated_tokens - 1) // self.block_tokens
        cdef int32_t hits = 0, block
        evictable[0] = 0
        most = min(most, s.hashes)
        while hits < most:
            block = self.kv.lookup(s.hash_list[hits]) if s.hash_list[hits] else -1
            if block < 0:
                break
            evictable[0] += self.kv.references[block] == 0
            hits += 1
        return hits

    cdef bint grow(self, sequence *s, int32_t tokens) except -1:
        """Room for `tokens` more; false, and nothing taken, if there is not enough."""
        cdef int32_t stored = s.computed_tokens + tokens
        cdef int32_t wanted = (stored + self.block_tokens - 1) // self.block_tokens - s.blocks
        cdef int32_t _block
        if wanted > self.kv.free_blocks():
            return False
        for _block in range(wanted):
            self.add_block(s, self.kv.take_free())
        self.register_blocks(s, stored)
        return True

    cdef int register_blocks(self, sequence *s, int32_t tokens) except -1:
        """As in vLLM, a block can be found from the moment its last token is scheduled."""
        cdef int32_t full = min(tokens // self.block_tokens, s.hashes)
        while s.registered < full:
            if s.hash_list[s.registered]:
                self.kv.register(s.block_list[s.registered], s.hash_list[s.registered])
            s.registered += 1
        return 0

    cdef int add_block(self, sequence *s, int32_t block) except -1:
        cdef int32_t *grown
        if s.blocks == s.block_room:
            s.block_room = s.block_room * 2 or 16
            grown = <int32_t *>realloc(s.block_list, <size_t>s.block_room * sizeof(int32_t))
            if not grown:
                raise MemoryError
            s.block_list = grown
        s.block_list[s.blocks] = block
        s.blocks += 1
        return 0

    cdef void free_blocks_of(self, sequence *s) noexcept:
        """Last block first: the end of a prompt is shared least, so it shall be evicted first."""
        while s.blocks:
            s.blocks -= 1
            self.kv.give_back(s.block_list[s.blocks])
        s.registered = s.computed_tokens = 0

    cdef int take_hashes(self, sequence *s, object hashes, int32_t hash_tokens) except -1:
        """Hashes for blocks of `hash_tokens` tokens; ours are derived if they are smaller."""
        cdef Py_buffer view
        cdef int64_t given, blocks, i
        cdef uint64_t value
        cdef const char *bytes_given
        if hash_tokens % self.block_tokens:
            raise ValueError(f"{hash_tokens} tokens a hash, wanted a multiple of"
                             f" {self.block_tokens}")
        PyObject_GetBuffer(hashes, &view, PyBUF_SIMPLE)
        try:
            bytes_given = <const char *>view.buf
            given = view.len // 8
            blocks = min(given * (hash_tokens // self.block_tokens),
                         (<int64_t>s.prompt_tokens + s.output_tokens) // self.block_tokens)
            s.hash_list = <uint64_t *>malloc(<size_t>(blocks * 8 or 8))
            if not s.hash_list:
                raise MemoryError
            s.hashes = <int32_t>blocks
            if hash_tokens == self.block_tokens:
                memcpy(s.hash_list, bytes_given, <size_t>blocks * 8)
            else:
                for i in range(blocks):
                    memcpy(&value, bytes_given + i * self.block_tokens // hash_tokens * 8, 8)
                    s.hash_list[i] = derived_hash(value, i)
        finally:
            PyBuffer_Release(&view)
        return 0

    # lists

    cdef void preempt(self, int32_t slot) noexcept:
        self.running_count -= 1  # always the last one
        self.free_blocks_of(&self.slots[slot])
        self.slots[slot].scheduled_tokens = 0
        self.wait(slot, True)
        self.preemptions += 1

    cdef void wait(self, int32_t slot, bint in_front) noexcept:
        cdef sequence *s = &self.slots[slot]
        s.state = WAITING
        s.older = -1 if in_front else self.waiting_tail
        s.newer = self.waiting_head if in_front else -1
        if s.older >= 0:
            self.slots[s.older].newer = slot
        else:
            self.waiting_head = slot
        if s.newer >= 0:
            self.slots[s.newer].older = slot
        else:
            self.waiting_tail = slot
        self.waiting_count += 1

    cdef void leave_waiting(self, int32_t slot) noexcept:
        cdef sequence *s = &self.slots[slot]
        if s.older >= 0:
            self.slots[s.older].newer = s.newer
        else:
            self.waiting_head = s.newer
        if s.newer >= 0:
            self.slots[s.newer].older = s.older
        else:
            self.waiting_tail = s.older
        self.waiting_count -= 1

    cdef void leave_running(self, int32_t slot) noexcept:
        cdef int32_t i = 0
        while self.running[i] != slot:
            i += 1
        self.running_count -= 1
        memmove(&self.running[i], &self.running[i + 1],
                <size_t>(self.running_count - i) * sizeof(int32_t))

    cdef int32_t new_slot(self) except -1:
        cdef int32_t room, i
        cdef sequence *grown
        if self.free_slot < 0:
            room = self.slot_room * 2 or 16
            if room > 1 << SLOT_BITS:
                raise OverflowError(f"more than {1 << SLOT_BITS} requests in one engine")
            grown = <sequence *>realloc(self.slots, <size_t>room * sizeof(sequence))
            if not grown:
                raise MemoryError
            memset(&grown[self.slot_room], 0, <size_t>(room - self.slot_room) * sizeof(sequence))
            for i in range(self.slot_room, room):
                grown[i].newer = i + 1 if i + 1 < room else -1
            self.free_slot = self.slot_room
            self.slots = grown
            self.slot_room = room
        i = self.free_slot
        self.free_slot = self.slots[i].newer
        memset(&self.slots[i], 0, sizeof(sequence))
        self.next_serial += 1
        self.slots[i].serial = self.next_serial
        return i

    cdef void release(self, int32_t slot) noexcept:
        cdef sequence *s = &self.slots[slot]
        self.free_blocks_of(s)
        free(s.block_list)
        free(s.hash_list)
        s.block_list = NULL
        s.hash_list = NULL
        s.state = UNUSED
        s.newer = self.free_slot
        self.free_slot = slot
