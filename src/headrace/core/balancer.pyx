from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from headrace.core.fleet cimport *
from headrace.core.segment cimport Segment

POLICIES = ("cost_aware", "cache_aware", "prefix_hash", "consistent_hash", "least_load", "power_of_two",
            "round_robin", "random")
REASONS = ("only", "turn", "least_load", "chance", "cost", "prefix", "session", "ring", "last_resort", "retry")
cdef enum Reason:
    REASON_ONLY, REASON_TURN, REASON_LEAST_LOAD


cdef class RouteRequest:
    def __cinit__(self):
        self.clear()

    cdef void clear(self) noexcept:
        self.model = 0
        self.kind = KIND_GENERATE
        self.stream = False
        self.priority = 2
        self.sequences = 1
        self.max_tokens = 0
        self.prompt_tokens = 0
        memset(self.features, 0, sizeof(self.features))
        self.has_session = False
        self.session = 0
        self.prefix_count = 0
        self.excluded_count = 0


cdef class Lease:
    cdef void note_bytes(self, uint64_t now_ns) noexcept:
        if self.open:
            atom_set_u64(&self.owner.block.cells[self.slot].progress_ns, now_ns)

    cdef void note_tokens(self, uint64_t now_ns, int count) noexcept:
        cdef cell *c
        if not self.open:
            return
        c = &self.owner.block.cells[self.slot]
        if self.first_ns == 0:
            self.first_ns = now_ns
            atom_add_i32(&c.decoding, self.sequences)
            if self.stream:
                hist_record(&self.owner.block.pairs[self.pair].ttft, HIST_TTFT, (now_ns - self.dispatched_ns) * 1e-9)
        self.generated += count
        self.last_ns = now_ns
        atom_add_f64(&c.inflight_tokens, count)
        atom_set_u64(&c.progress_ns, now_ns)

    cdef bint _close(self) noexcept:
        cdef cell *c
        cdef pair_cell *p
        if not self.open:
            return False
        self.open = False
        c = &self.owner.block.cells[self.slot]
        p = &self.owner.block.pairs[self.pair]
        atom_add_i32(&c.requests, -1)
        atom_add_i32(&c.seqs, -self.sequences)
        if self.first_ns:
            atom_add_i32(&c.decoding, -self.sequences)
        atom_add_f64(&c.inflight_tokens, -self.prompt_tokens - self.generated)
        atom_add_i32(&p.requests, -1)
        return True

    cdef void end_ok(self, uint64_t now_ns, int64_t prompt_tokens, int64_t completion_tokens,
                     int64_t cached_tokens) noexcept:
        cdef cell *c
        if self._close():
            c = &self.owner.block.cells[self.slot]
            atom_add_u64(&c.succeeded, 1)
            atom_set_u64(&c.ok_ns, now_ns)
            atom_set_u32(&c.fail_streak, 0)
            atom_add_u64(&c.completed_tokens, max(completion_tokens, 0))

    cdef void end_neutral(self, uint64_t now_ns) noexcept:
        if self._close():
            atom_add_u64(&self.owner.block.cells[self.slot].neutral, 1)

    cdef void end_failed(self, uint64_t now_ns, int failure) noexcept:
        cdef cell *c
        if self._close():
            c = &self.owner.block.cells[self.slot]
            atom_add_u64(&c.failures[failure], 1)
            if failure != FAILURE_OVERLOADED and failure != FAILURE_STALE:
                atom_add_u32(&c.fail_streak, 1)
                atom_set_u64(&c.failed_ns, now_ns)

    cdef void end_cancelled(self, uint64_t now_ns) noexcept:
        if self._close():
            atom_add_u64(&self.owner.block.cells[self.slot].cancelled, 1)



cdef class Balancer:
    def __init__(self, Segment segment not None, int process, dict settings):
        self.segment = segment
        self.process = process
        self.base = segment.base
        self.block = fleet_block(segment.base, process)
        self.models = [None] * FLEET_MODELS
        self.random_state = 0x9E3779B97F4A7C15 + process
        self.configure(settings)

    def configure(self, dict settings):
        self.settings = settings
        self.policy = POLICIES.index(settings.get("policy", "cost_aware"))

    def set_model(self, int model, int group, slots, pairs):
        self.models[model] = (group, tuple(slots), tuple(pairs))

    def clear_model(self, int model):
        self.models[model] = None

    cdef int route(self, RouteRequest request, Lease lease, uint64_t now_ns):
        cdef row r
        cdef int i, slot, n = 0, load, least = 2147483647, best = -1, best_pair = 0, seen = 0
        entry = self.models[request.model]
        if entry is None:
            return NO_REPLICA
        group, slots, pairs = entry
        limit = self.settings.get("overload_ratio", 0.8)
        self.rotation += 1
        n = len(slots)
        for i in range(n):
            at = (i + self.rotation) % n
            slot = slots[at]
            if row_read(fleet_row(self.base, slot), &r) != 0 or not r.flags & ROW_ELIGIBLE:
                continue
            if self._is_excluded(request, slot):
                continue
            seen += 1
            load = fleet_requests(self.base, slot)
            if load > limit * r.max_concurrency or (r.max_queue and r.waiting > r.max_queue):
                continue
            if self.policy == 6:
                best, best_pair = slot, pairs[at]
                break
            if load < least:
                least, best, best_pair = load, slot, pairs[at]
        if best < 0:
            return OVERLOADED if seen else NO_REPLICA
        self._open(request, lease, best, best_pair, group, now_ns)
        lease.reason = REASON_ONLY if n == 1 else REASON_TURN if self.policy == 6 else REASON_LEAST_LOAD
        return ROUTED

    def _is_excluded(self, RouteRequest request, int slot):
        cdef int i
        for i in range(request.excluded_count):
            if request.excluded[i] == slot:
                return True
        return False

    def _open(self, RouteRequest request, Lease lease, int slot, int pair, int group, uint64_t now_ns):
        cdef cell *c = &self.block.cells[slot]
        lease.owner = self
        lease.slot, lease.pair, lease.model, lease.group = slot, pair, request.model, group
        lease.generation = fleet_row(self.base, slot).generation
        lease.open, lease.stream, lease.sequences = True, request.stream, request.sequences
        lease.dispatched_ns = lease.start_at_ns = now_ns
        lease.first_ns = lease.last_ns = 0
        lease.generated = 0
        lease.prompt_tokens = request.prompt_tokens
        if atom_i32(&c.requests) == 0:
            atom_set_u64(&c.busy_since_ns, now_ns)
        atom_add_i32(&c.requests, 1)
        atom_add_i32(&c.seqs, request.sequences)
        atom_add_f64(&c.inflight_tokens, request.prompt_tokens)
        atom_add_u64(&c.sent, 1)
        atom_add_i32(&self.block.pairs[pair].requests, 1)

    cdef int retry(self, RouteRequest request, Lease failed, Lease lease, int failure, uint64_t now_ns):
        failed.end_failed(now_ns, failure)
        if request.excluded_count < 8:
            request.excluded[request.excluded_count] = failed.slot
            request.excluded_count += 1
        return self.route(request, lease, now_ns)

    cdef double retry_after_s(self, int model, uint64_t now_ns):
        return 1.0
