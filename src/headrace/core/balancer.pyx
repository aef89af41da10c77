from libc.math cimport fmax, fmin, isfinite
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from headrace.core.books cimport Books, served, zeros
from headrace.core.fleet cimport *
from headrace.core.lb cimport *
from headrace.core.lease cimport Lease, advance_plain, schedule
from headrace.core.request cimport KIND_EMBED, RouteRequest
from headrace.core.segment cimport Segment

from headrace.core.lease import POLICIES

cdef enum:
    EXCLUDED_ROOM = 8
    MOST_WAIT_S = 60
    WAIT_WITHOUT_REPLICAS_S = 5


cdef class Balancer:
    def __cinit__(self, Segment segment not None, int process, dict settings not None):
        self.books = Books(segment, process)
        self.match = <prefix_match *>zeros(1, sizeof(prefix_match))
        self.room = <admitted *>zeros(1, sizeof(admitted))
        self.turns = <double *>zeros(FLEET_SLOTS, sizeof(double))
        self.score = <double *>zeros(FLEET_SLOTS, sizeof(double))

    def __init__(self, Segment segment not None, int process, dict settings not None):
        self.chance.state = hash_mix(settings.get("seed", 0) & 0xFFFFFFFFFFFFFFFF, process)
        self.configure(settings)

    def __dealloc__(self):
        free(self.match)
        free(self.room)
        free(self.turns)
        free(self.score)

    def configure(self, dict settings not None):
        """Takes over settings: all keys of `routing`, `admission` and `retry`, in one dict."""
        policy = settings["policy"]
        if policy not in POLICIES:
            raise ValueError(f"policy: wanted {policy!r}, have {', '.join(POLICIES)}")
        self.settings = settings
        self.policy = POLICIES.index(policy)
        self.ops = lb_ops_of(self.policy)
        self.load_factor = settings["load_factor"]
        self.gateways = settings["gateways"]
        self.overload_ratio = settings["overload_ratio"]
        view_set_ratio(self.books.seen, self.overload_ratio)
        self.books.moved = True
        self.max_concurrent_requests = settings["max_concurrent_requests"]
        self.max_retries = settings["max_retries"]
        self.budget_ratio = settings["budget_ratio"]
        self.min_per_s = settings["min_per_s"]
        self.backoff_s = settings["backoff_s"]
        self.jitter = settings["jitter"]

    # ---- filter, score, pick

    cdef int admit(self, served *m, RouteRequest request, uint8_t *why) noexcept:
        """Candidates of a model by place in self.room; their number."""
        cdef admit_rules rules
        rules.tried = request.excluded
        rules.tried_count = request.excluded_count
        admit_all(self.books.seen, m.slots, m.count, &rules, self.room, why)
        return self.room.count

    cdef int refusal(self) noexcept:
        if self.room.by[ADMIT_OVERLOADED] or self.room.by[ADMIT_QUEUE]:
            return OVERLOADED
        return NO_REPLICA

    cdef int prepare(self, served *m, RouteRequest request, lb_request *q, lb_pool *pool) except -1:
        cdef Books b = self.books
        cdef rates *r = &b.groups[m.group]
        cdef int i
        if request.estimated:
            request.prompt_tokens = learn_prompt_tokens(r, request.features)
        q.cost.prompt_tokens = 1
        if isfinite(request.prompt_tokens) and request.prompt_tokens > 1:
            q.cost.prompt_tokens = request.prompt_tokens
        q.cost.output_tokens = 0
        if request.kind != KIND_EMBED:
            q.cost.output_tokens = learn_output(r, request.max_tokens)
        q.cost.sequences = request.sequences
        q.prefix, q.prefix_count = request.prefix, request.prefix_count
        q.block_tokens = cost_block_tokens(q.cost.prompt_tokens, request.prefix_count)
        q.has_session, q.session = request.has_session, request.session
        pool.view, pool.rates = b.seen, r
        pool.match, pool.ring = NULL, NULL
        pool.ids, pool.slots, pool.turns = b.ids, self.room.slot, self.turns
        pool.count = self.room.count
        pool.speed = b.speeds_of(m)
        pool.load_factor, pool.gateways = self.load_factor, self.gateways
        pool.rng = &self.chance
        if self.ops.needs & LB_NEEDS_PREFIX and request.prefix_count:
            prefix_lookup(&b.table, request.prefix, request.prefix_count, pool.slots, pool.count,
                          b.seen.prefix_blocks, self.match)
            pool.match = self.match
        if self.ops.needs & LB_NEEDS_TURNS:
            for i in range(pool.count):
                self.turns[i] = m.turns[self.room.index[i]]
        if self.ops.needs & LB_NEEDS_RING:
            pool.ring = b.ring_of(m)
        return 0

    cdef int _choose(self, RouteRequest request, Lease lease, uint64_t now_ns,
                     bint again) except -1:
        cdef Books b = self.books
        cdef served *m = b.served_by(request.model)
        cdef lb_request q
        cdef lb_pool pool
        cdef lb_choice choice
        cdef int i
        cdef double hit = 0
        cdef uint16_t slot
        if m == NULL or b.process == b.segment.processes:
            return NO_REPLICA
        b.renew(now_ns)
        advance_plain(b, now_ns)
        if self.admit(m, request, NULL) == 0:
            return self.refusal()
        if again and budget_withdraw(&b.base.shared_budget, self.min_per_s, now_ns) != 0:
            return RETRY_DENIED
        self.prepare(m, request, &q, &pool)
        choice = lb_pick(self.ops, &pool, &q, self.score)
        if self.ops.needs & LB_NEEDS_TURNS:
            for i in range(pool.count):
                m.turns[self.room.index[i]] = self.turns[i]
        slot = self.room.slot[choice.place]
        lease.matched_tokens = 0
        if pool.match:
            hit = cost_hit_tokens(q.cost.prompt_tokens, q.block_tokens, self.match.blocks[slot],
                                  self.match.age[slot])
            lease.matched_tokens = <int>fmin(self.match.blocks[slot] * q.block_tokens,
                                             q.cost.prompt_tokens)
        lease.score = self.score[choice.place]
        lease.policy, lease.reason = self.policy, LB_RETRY if again else choice.reason
        lease.prompt_tokens, lease.output_tokens = q.cost.prompt_tokens, q.cost.output_tokens
        self._open(request, lease, m, self.room.index[choice.place], hit, now_ns)
        return ROUTED

    cdef void _open(self, RouteRequest request, Lease lease, served *m, int place, double hit,
                    uint64_t now_ns) noexcept:
        cdef Books b = self.books
        cdef view *v = b.seen
        cdef rates *r = &b.groups[m.group]
        cdef int slot = m.slots[place]
        cdef double queued = v.pending_tokens[slot] + v.foreign_waiting[slot] * r.uncached_tokens
        cdef double uncached = fmax(lease.prompt_tokens - hit, 1)
        lease.books = b
        lease.slot, lease.pair = slot, m.pairs[place]
        lease.model, lease.group = request.model, m.group
        lease.generation = v.generation[slot]
        lease.open, lease.stream, lease.sequences = True, request.stream, max(request.sequences, 1)
        lease.kind, lease.max_tokens = request.kind, request.max_tokens
        lease.dispatched_ns = lease.start_at_ns = now_ns
        lease.first_ns = lease.last_ns = 0
        lease.generated, lease.grown, lease.paused = 0, 0, False
        lease.hit_tokens = hit
        lease.estimated = request.estimated
        memcpy(lease.features, request.features, sizeof(lease.features))
        lease.alone = queued < 1 and v.seqs[slot] == v.decoding[slot]
        lease.queued_tokens = queued + uncached
        lease.expected_s = cost_first_token_s(v, r, slot, m.speed[slot], uncached)
        lease.taken.slot, lease.taken.pair = slot, lease.pair
        lease.taken.sequences, lease.taken.generation = lease.sequences, lease.generation
        lease.taken.uncached_tokens = uncached
        lease.taken.prefill_s = uncached * r.token_s
        lease.taken.kv_tokens = uncached + COST_HIT_KV * hit
        lease.taken.inflight_tokens = lease.prompt_tokens
        claim_open(&lease.taken, b.block, v, now_ns)
        learn_uncached(&b.block.groups[m.group], uncached)
        if self.ops.needs & LB_NEEDS_PREFIX:
            prefix_insert(&b.table, request.prefix, request.prefix_count, slot,
                          0 if v.flags[slot] & ROW_FOLLOWED else <uint32_t>(
                              (uncached + PREFIX_BLOCK_TOKENS - 1) / PREFIX_BLOCK_TOKENS),
                          v.prefix_blocks)
        if not lease.stream and lease.kind != KIND_EMBED:
            schedule(lease, now_ns + <uint64_t>(lease.expected_s * 1e9))

    # ---- calls

    cdef void tick(self, uint64_t now_ns) noexcept:
        advance_plain(self.books, now_ns)

    cdef int route(self, RouteRequest request, Lease lease, uint64_t now_ns):
        cdef fleet *base = self.books.base
        cdef int verdict
        cdef int64_t requests = 0
        cdef uint32_t p
        if self.max_concurrent_requests > 0:
            for p in range(base.processes):
                requests += atom_i64(&fleet_block(base, p).self.requests)
            if requests > self.max_concurrent_requests:
                return GATEWAY_FULL
        verdict = self._choose(request, lease, now_ns, False)
        if verdict == ROUTED:
            budget_deposit(&base.shared_budget, self.budget_ratio, self.min_per_s, now_ns)
        return verdict

    cdef int retry(self, RouteRequest request, Lease failed, Lease lease, int failure,
                   uint64_t now_ns):
        cdef int verdict, tries
        cdef double wait_s
        failed.end_failed(now_ns, failure)
        if request.excluded_count >= min(self.max_retries, EXCLUDED_ROOM):
            return RETRY_DENIED
        request.excluded[request.excluded_count] = failed.slot
        request.excluded_count += 1
        tries = request.excluded_count
        verdict = self._choose(request, lease, now_ns, True)
        if verdict == ROUTED:
            wait_s = self.backoff_s * (1 << (tries - 1))
            wait_s *= 1 - self.jitter * rng_unit(&self.chance)
            lease.start_at_ns = now_ns + <uint64_t>(fmax(wait_s, 0) * 1e9)
        return verdict

    cdef double retry_after_s(self, int model, uint64_t now_ns):
        """When as many requests will have ended as there are too many on the replica nearest to its
        limit.
        """
        cdef Books b = self.books
        cdef served *m = b.served_by(model)
        cdef view *v = b.seen
        cdef double excess, least = 1e9, per_s = 0, wait_s
        cdef int i, slot, eligible = 0
        if m == NULL:
            return WAIT_WITHOUT_REPLICAS_S
        b.renew(now_ns)
        for i in range(m.count):
            slot = m.slots[i]
            if v.flags[slot] & ROW_ELIGIBLE:
                eligible += 1
                per_s += v.done_per_s[slot]
                excess = v.requests[slot] - self.overload_ratio * v.max_concurrency[slot]
                least = fmin(least, excess)
        if eligible == 0:
            return WAIT_WITHOUT_REPLICAS_S
        if per_s > 1e-3:
            wait_s = fmax(least, 1) / per_s
        else:  # nothing has ended so far: half a usual answer
            wait_s = b.groups[m.group].output_tokens * b.groups[m.group].base_s / 2
        return fmin(fmax(wait_s, 1), MOST_WAIT_S)

    # ---- for Python: the library, the simulator, the admin port

    def open(self, RouteRequest request not None, uint64_t now_ns):
        """(verdict, lease): the lease is open if the verdict is ROUTED (0)."""
        cdef Lease lease = Lease()
        return self.route(request, lease, now_ns), lease

    def reopen(self, RouteRequest request not None, Lease failed not None, int failure,
               uint64_t now_ns):
        """(verdict, lease) of a retry; `failed` has ended."""
        cdef Lease lease = Lease()
        return self.retry(request, failed, lease, failure, now_ns), lease

    def wait_s(self, int model, uint64_t now_ns):
        """Seconds until a refused request is worth another try."""
        return self.retry_after_s(model, now_ns)

    def advance(self, uint64_t now_ns):
        """What time alone brings about, without a request."""
        self.books.renew(now_ns)
        self.tick(now_ns)

    def enter(self, int count):
        """Counts requests that entered (or, negative, left) the gateway, for
        admission.max_concurrent_requests.
        """
        atom_add_i64(&self.books.block.self.requests, count)

    def budget(self, uint64_t now_ns):
        """Retries that the budget allows now."""
        return budget_balance(&self.books.base.shared_budget, self.min_per_s, now_ns)

    def choose(self, RouteRequest request not None, uint64_t now_ns, int times=1):
        """The slot that would be chosen, `times` over without taking it: so the cost of a decision
        can be measured.
        """
        cdef served *m = self.books.served_by(request.model)
        cdef lb_request q
        cdef lb_pool pool
        cdef int _, place = 0
        if m == NULL:
            return None
        self.books.renew(now_ns)
        for _ in range(times):
            if self.admit(m, request, NULL) == 0:
                return None
            self.prepare(m, request, &q, &pool)
            place = lb_pick(self.ops, &pool, &q, self.score).place
        return self.room.slot[place]
