cimport cython
from libc.math cimport fmax, fmin, isfinite
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from headrace.core.fleet cimport *
from headrace.core.lb cimport *
from headrace.core.request cimport KIND_EMBED, RouteRequest
from headrace.core.segment cimport Segment

POLICIES = tuple((<bytes>lb_ops_of(i).name).decode() for i in range(LB_POLICIES))
REASONS = tuple((<bytes>lb_reason_names[i]).decode() for i in range(LB_REASONS))
ADMISSIONS = tuple((<bytes>admit_names[i]).decode() for i in range(ADMITS))

cdef enum:
    EXCLUDED_ROOM = 8
    PLAIN_STEPS = 16  # of a plain request between two bookings of its tokens
    MOST_WAIT_S = 60
    WAIT_WITHOUT_REPLICAS_S = 5

cdef uint64_t LEARN_PERIOD_NS = 10_000_000
cdef uint64_t UNCLEAN_AFTER_NS = 3_000_000_000
cdef uint64_t PLAIN_LEAST_STEP_NS = 20_000_000
cdef double UNCLEAN_WEIGHT = 0.3
cdef double MOST_TTFT = 4  # times the predicted one


# The collector may not take `owner` away first: what is open is given back at the very end.
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
            atom_set_u64(&self.owner.block.cells[self.slot].progress_ns, now_ns)

    cdef void note_tokens(self, uint64_t now_ns, int count) noexcept:
        if not self.open:
            return
        if self.first_ns == 0:
            self._first(now_ns)
        elif self.owner.oldest[self.slot] == <void *>self and count > 0 and not self.paused:
            self._sample_gap(now_ns, count)
        self.paused = False
        self.generated += count
        self.last_ns = now_ns
        if self.stream:
            claim_grow(&self.taken, self.owner.block, self.owner.seen, count)
        atom_set_u64(&self.owner.block.cells[self.slot].progress_ns, now_ns)

    cdef void note_pause(self) noexcept:
        self.paused = True

    cdef void _first(self, uint64_t now_ns) noexcept:
        self.first_ns = now_ns
        if not self.stream:
            return
        hist_record(&self.owner.block.pairs[self.pair].ttft, HIST_TTFT,
                    (now_ns - self.start_at_ns) * 1e-9)
        self._sample_first(now_ns)
        claim_decode(&self.taken, self.owner.block, self.owner.seen, now_ns)
        if self.sequences == 1:
            self._follow()

    cdef void _sample_first(self, uint64_t now_ns) noexcept:
        """A prefill that found nothing pending took this long: a sample of the model's prefill
        rate.
        """
        cdef Balancer b = self.owner
        cdef double ttft_s
        if not self.alone or now_ns < self.start_at_ns:
            return
        ttft_s = fmin((now_ns - self.start_at_ns) * 1e-9, MOST_TTFT * self.expected_s)
        learn_prefill(&b.block.groups[self.group], self.queued_tokens,
                      ttft_s / cost_slowness(b.seen, self.slot, b.typical[self.group]))

    cdef void _sample_gap(self, uint64_t now_ns, int count) noexcept:
        """One sample a step of the replica, from its oldest decoding stream here."""
        cdef Balancer b = self.owner
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
                       weight, now_ns)

    cdef void _follow(self) noexcept:
        cdef Balancer b = self.owner
        self.newer = NULL
        self.older = b.newest[self.slot]
        if self.older:
            (<Lease>self.older).newer = <void *>self
        else:
            b.oldest[self.slot] = <void *>self
        b.newest[self.slot] = <void *>self

    cdef void _unfollow(self) noexcept:
        cdef Balancer b = self.owner
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
        cdef Balancer b = self.owner
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
            b._schedule(self, now_ns + max(PLAIN_LEAST_STEP_NS,
                                           <uint64_t>(PLAIN_STEPS * step_s * 1e9)))

    cdef bint _close(self, uint64_t now_ns) noexcept:
        if not self.open:
            return False
        self.open = False
        if self.due_place >= 0:
            due_remove(&self.owner.plain, self.due_place)
        self._unfollow()
        claim_close(&self.taken, self.owner.block, self.owner.seen, now_ns)
        return True

    cdef void end_ok(self, uint64_t now_ns, int64_t prompt_tokens, int64_t completion_tokens,
                     int64_t cached_tokens) noexcept:
        cdef Balancer b = self.owner
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
            prefix_advance(&b.table, self.slot, <uint32_t>(output // PREFIX_BLOCK_TOKENS))

    cdef void end_neutral(self, uint64_t now_ns) noexcept:
        if self._close(now_ns):
            atom_add_u64(&self.owner.block.cells[self.slot].neutral, 1)

    cdef void end_failed(self, uint64_t now_ns, int failure) noexcept:
        cdef cell *c
        if not self._close(now_ns):
            return
        c = &self.owner.block.cells[self.slot]
        atom_add_u64(&c.failures[failure], 1)
        if failure != FAILURE_OVERLOADED and failure != FAILURE_STALE:
            atom_add_u32(&c.fail_streak, 1)
            atom_set_u64(&c.failed_ns, now_ns)

    cdef void end_cancelled(self, uint64_t now_ns) noexcept:
        if self._close(now_ns):
            atom_add_u64(&self.owner.block.cells[self.slot].cancelled, 1)

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
        return (f"policy={POLICIES[self.owner.policy]}; reason={REASONS[self.reason]}; "
                f"prompt_tokens={self.prompt_tokens:.0f}; matched_tokens={self.matched_tokens}; "
                f"score={self.score:.6g}")


cdef void *zeros(size_t n, size_t size) except NULL:
    cdef void *p = calloc(n, size)
    if p == NULL:
        raise MemoryError
    return p


@cython.no_gc_clear
cdef class Balancer:
    def __cinit__(self, Segment segment not None, int process, dict settings not None):
        cdef int i
        if not 0 <= process <= segment.processes:
            raise ValueError(f"process: wanted {process}, have 0 to {segment.processes}")
        self.segment = segment
        self.process = process
        self.base = segment.base
        self.block = fleet_block(segment.base, process)
        self.table = prefix_of(segment.base)
        self.seen = <view *>zeros(1, sizeof(view))
        self.groups = <rates *>zeros(FLEET_GROUPS, sizeof(rates))
        self.typical = <double *>zeros(FLEET_GROUPS, sizeof(double))
        self.models = <served **>zeros(FLEET_MODELS, sizeof(served *))
        self.ids = <uint64_t *>zeros(FLEET_SLOTS, sizeof(uint64_t))
        self.match = <prefix_match *>zeros(1, sizeof(prefix_match))
        self.room = <admitted *>zeros(1, sizeof(admitted))
        self.turns = <double *>zeros(FLEET_SLOTS, sizeof(double))
        self.score = <double *>zeros(FLEET_SLOTS, sizeof(double))
        self.why = <uint8_t *>zeros(FLEET_SLOTS, 1)
        self.oldest = <void **>zeros(FLEET_SLOTS, sizeof(void *))
        self.newest = <void **>zeros(FLEET_SLOTS, sizeof(void *))
        view_init(self.seen, process if process < segment.processes else -1)
        for i in range(FLEET_GROUPS):
            learn_init(&self.groups[i])
            self.typical[i] = 1
        for i in range(FLEET_SLOTS):
            self.ids[i] = hash_mix(i, 0)

    def __init__(self, Segment segment not None, int process, dict settings not None):
        self.chance.state = hash_mix(settings.get("seed", 0) & 0xFFFFFFFFFFFFFFFF, process)
        self.configure(settings)

    def __dealloc__(self):
        cdef int i
        if self.models:
            for i in range(FLEET_MODELS):
                free_served(self.models[i])
        for p in (<size_t>self.seen, <size_t>self.groups, <size_t>self.typical, <size_t>self.models,
                  <size_t>self.ids,
                  <size_t>self.match, <size_t>self.room, <size_t>self.turns,
                  <size_t>self.score,
                  <size_t>self.why, <size_t>self.oldest, <size_t>self.newest,
                  <size_t>self.plain.entries):
            free(<void *><size_t>p)

    # ---- what there is

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
        view_set_ratio(self.seen, self.overload_ratio)
        self.moved = True
        self.max_concurrent_requests = settings["max_concurrent_requests"]
        self.max_retries = settings["max_retries"]
        self.budget_ratio = settings["budget_ratio"]
        self.min_per_s = settings["min_per_s"]
        self.backoff_s = settings["backoff_s"]
        self.jitter = settings["jitter"]

    def set_replica(self, int slot, str id not None):
        """The name behind a slot: hashing policies place replicas by it, alike in every process,
        host and release.
        """
        cdef bytes name = id.encode()
        cdef uint64_t h = hash_bytes(<const char *>name, len(name), 0)
        self.segment._slot(slot)
        if self.ids[slot] != h:
            self.ids[slot] = h
            self.ids_version += 1

    def set_model(self, int model, int group, slots, pairs):
        """A model is served by these slots, each under the pair at the same place."""
        cdef served *m
        cdef served *old
        cdef int i, k
        if not 0 <= model < FLEET_MODELS or not 0 <= group < FLEET_GROUPS:
            raise IndexError(f"model {model}, group {group}: "
                             f"have {FLEET_MODELS} models, {FLEET_GROUPS} groups")
        places = {self.segment._slot(slot): pair for slot, pair in zip(slots, pairs, strict=True)}
        if not all(0 <= pair < FLEET_PAIRS for pair in places.values()):
            raise IndexError(f"pairs: wanted {max(places.values())}, have 0 to {FLEET_PAIRS - 1}")
        m = new_served(group, len(places))
        old = self.models[model]
        for i, (slot, pair) in enumerate(places.items()):
            m.slots[i], m.pairs[i] = slot, pair
            # Who comes first differs by process, or all would start with the same replica.
            m.turns[i] = 1e-6 * (m.count - (FLEET_SLOTS * m.count + i - self.process) % m.count)
            for k in range(old.count if old else 0):
                if old.slots[k] == slot:
                    m.turns[i] = old.turns[k]
        free_served(old)
        self.models[model] = m
        self.moved = True

    def clear_model(self, int model):
        """The model is unknown."""
        if not 0 <= model < FLEET_MODELS:
            raise IndexError(f"model: wanted {model}, have 0 to {FLEET_MODELS - 1}")
        free_served(self.models[model])
        self.models[model] = NULL
        self.moved = True

    cdef void _use_slots(self):
        cdef uint8_t used[FLEET_SLOTS]
        cdef uint16_t slots[FLEET_SLOTS]
        cdef int i, k, n = 0
        memset(used, 0, sizeof(used))
        for i in range(FLEET_MODELS):
            if self.models[i]:
                for k in range(self.models[i].count):
                    used[self.models[i].slots[k]] = 1
        for i in range(FLEET_SLOTS):
            if used[i]:
                slots[n] = i
                n += 1
        view_use(self.seen, slots, n)
        self.moved = False

    # ---- what is known now

    cdef void _renew(self, uint64_t now_ns):
        cdef uint8_t done[FLEET_GROUPS]
        cdef served *m
        cdef int i
        cdef bint changed = self.moved
        if changed:
            self._use_slots()
        if changed or view_is_due(self.seen, self.base, now_ns):
            view_renew(self.seen, self.base, now_ns)
            self.renewals += 1
        if not changed and now_ns - self.learned_ns < LEARN_PERIOD_NS:
            return
        self.learned_ns = now_ns
        self.renewals += 1
        memset(done, 0, sizeof(done))
        for i in range(FLEET_MODELS):
            m = self.models[i]
            if m and not done[m.group]:
                done[m.group] = 1
                learn_refresh(&self.groups[m.group], self.base, m.group)
                self.typical[m.group] = cost_typical(self.seen, m.slots, m.count)

    cdef void tick(self, uint64_t now_ns) noexcept:
        cdef due *first = due_first(&self.plain, now_ns)
        cdef Lease lease
        while first != NULL:
            lease = <Lease>first.what
            due_remove(&self.plain, lease.due_place)
            lease._advance(now_ns)
            first = due_first(&self.plain, now_ns)

    cdef bint _schedule(self, Lease lease, uint64_t at_ns) noexcept:
        cdef due entry
        cdef due *grown
        if self.plain.count == self.plain.room:
            grown = <due *>realloc(self.plain.entries, (2 * self.plain.room + 64) * sizeof(due))
            if grown == NULL:
                return False
            self.plain.entries = grown
            self.plain.room = 2 * self.plain.room + 64
        entry.at_ns, entry.what, entry.place = at_ns, <void *>lease, &lease.due_place
        return due_push(&self.plain, entry) == 0

    # ---- filter, score, pick

    cdef int _admit(self, served *m, RouteRequest request, uint8_t *why) noexcept:
        """Candidates of a model by place in self.room; their number."""
        cdef admit_rules rules
        rules.tried = request.excluded
        rules.tried_count = request.excluded_count
        admit_all(self.seen, m.slots, m.count, &rules, self.room, why)
        return self.room.count

    cdef int _verdict(self) noexcept:
        if self.room.by[ADMIT_OVERLOADED] or self.room.by[ADMIT_QUEUE]:
            return OVERLOADED
        return NO_REPLICA

    cdef int _build_ring(self, served *m) except -1:
        cdef uint64_t version = self.seen.weights_version + self.ids_version
        cdef double w, most = 1, scale
        cdef uint32_t n = 0, k
        cdef int i
        cdef chash_point *scratch
        if m.ring.points and m.ring_version == version:
            return 0
        for i in range(m.count):
            most = fmax(most, self.seen.weight[m.slots[i]])
        scale = fmin(1, 8 / most)
        free(m.ring.points)
        m.ring.points, m.ring.count = NULL, 0
        for i in range(m.count):
            w = self.seen.weight[m.slots[i]]
            n += chash_points(w * scale if w > 0 else 1)
        m.ring.points = <chash_point *>zeros(n, sizeof(chash_point))
        scratch = <chash_point *>zeros(n, sizeof(chash_point))
        for i in range(m.count):
            w = self.seen.weight[m.slots[i]]
            k = chash_points(w * scale if w > 0 else 1)
            chash_fill(m.ring.points + m.ring.count, k, self.ids[m.slots[i]], m.slots[i])
            m.ring.count += k
        chash_sort(m.ring.points, m.ring.count, scratch)
        free(scratch)
        m.ring_version = version
        return 0

    cdef int _pool(self, served *m, RouteRequest request, lb_request *q, lb_pool *pool) except -1:
        cdef rates *r = &self.groups[m.group]
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
        pool.view, pool.rates = self.seen, r
        pool.match, pool.ring = NULL, NULL
        pool.ids, pool.slots, pool.turns = self.ids, self.room.slot, self.turns
        pool.count = self.room.count
        if m.speed_version != self.renewals:
            m.speed_version = self.renewals
            cost_speeds(self.seen, m.slots, m.count, self.typical[m.group], m.speed)
        pool.speed = m.speed
        pool.load_factor, pool.gateways = self.load_factor, self.gateways
        pool.rng = &self.chance
        if self.ops.needs & LB_NEEDS_PREFIX and request.prefix_count:
            prefix_lookup(&self.table, request.prefix, request.prefix_count, self.room.slot,
                          pool.count, self.seen.prefix_blocks, self.match)
            pool.match = self.match
        if self.ops.needs & LB_NEEDS_TURNS:
            for i in range(pool.count):
                self.turns[i] = m.turns[self.room.index[i]]
        if self.ops.needs & LB_NEEDS_RING:
            self._build_ring(m)
            pool.ring = &m.ring
        return 0

    cdef int _choose(self, RouteRequest request, Lease lease, uint64_t now_ns,
                     bint again) except -1:
        cdef served *m = self.models[request.model] if 0 <= request.model < FLEET_MODELS else NULL
        cdef lb_request q
        cdef lb_pool pool
        cdef lb_choice choice
        cdef int i
        cdef double hit = 0
        cdef uint16_t slot
        if m == NULL or m.count == 0 or self.process == self.segment.processes:
            return NO_REPLICA
        self._renew(now_ns)
        self.tick(now_ns)
        if self._admit(m, request, NULL) == 0:
            return self._verdict()
        if again and budget_withdraw(&self.base.shared_budget, self.min_per_s, now_ns) != 0:
            return RETRY_DENIED
        self._pool(m, request, &q, &pool)
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
        lease.reason = LB_RETRY if again else choice.reason
        lease.prompt_tokens, lease.output_tokens = q.cost.prompt_tokens, q.cost.output_tokens
        self._open(request, lease, m, self.room.index[choice.place], hit, now_ns)
        return ROUTED

    cdef void _open(self, RouteRequest request, Lease lease, served *m, int place, double hit,
                    uint64_t now_ns) noexcept:
        cdef view *v = self.seen
        cdef rates *r = &self.groups[m.group]
        cdef int slot = m.slots[place]
        cdef double queued = v.pending_tokens[slot] + v.foreign_waiting[slot] * r.uncached_tokens
        cdef double uncached = fmax(lease.prompt_tokens - hit, 1)
        lease.owner = self
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
        lease.taken.kv_tokens = uncached + 0.3 * hit
        lease.taken.inflight_tokens = lease.prompt_tokens
        claim_open(&lease.taken, self.block, v, now_ns)
        learn_uncached(&self.block.groups[m.group], uncached)
        if self.ops.needs & LB_NEEDS_PREFIX:
            prefix_insert(&self.table, request.prefix, request.prefix_count, slot,
                          <uint32_t>((uncached + PREFIX_BLOCK_TOKENS - 1) / PREFIX_BLOCK_TOKENS),
                          v.prefix_blocks)
        if not lease.stream and lease.kind != KIND_EMBED:
            self._schedule(lease, now_ns + <uint64_t>(lease.expected_s * 1e9))

    # ---- calls

    cdef int route(self, RouteRequest request, Lease lease, uint64_t now_ns):
        cdef int verdict
        cdef int64_t requests = 0
        cdef uint32_t p
        if self.max_concurrent_requests > 0:
            for p in range(self.base.processes):
                requests += atom_i64(&fleet_block(self.base, p).self.requests)
            if requests > self.max_concurrent_requests:
                return GATEWAY_FULL
        verdict = self._choose(request, lease, now_ns, False)
        if verdict == ROUTED:
            budget_deposit(&self.base.shared_budget, self.budget_ratio, self.min_per_s, now_ns)
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

    cdef int peek(self, RouteRequest request, uint64_t now_ns):
        cdef served *m = self.models[request.model] if 0 <= request.model < FLEET_MODELS else NULL
        if m == NULL or m.count == 0:
            return NO_REPLICA
        self._renew(now_ns)
        return ROUTED if self._admit(m, request, NULL) else self._verdict()

    cdef double retry_after_s(self, int model, uint64_t now_ns):
        """When as many requests will have ended as there are too many on the replica nearest to its
        limit.
        """
        cdef served *m = self.models[model] if 0 <= model < FLEET_MODELS else NULL
        cdef view *v = self.seen
        cdef double excess, least = 1e9, per_s = 0, wait_s
        cdef int i, slot, eligible = 0
        if m == NULL:
            return WAIT_WITHOUT_REPLICAS_S
        self._renew(now_ns)
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
            wait_s = self.groups[m.group].output_tokens * self.groups[m.group].base_s / 2
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
        self._renew(now_ns)
        self.tick(now_ns)

    def forget_view(self):
        """Rows have changed: the next decision reads them, whenever it comes."""
        self.moved = True

    def enter(self, int count):
        """Counts requests that entered (or, negative, left) the gateway, for
        admission.max_concurrent_requests.
        """
        atom_add_i64(&self.block.self.requests, count)

    def budget(self, uint64_t now_ns):
        """Retries that the budget allows now."""
        return budget_balance(&self.base.shared_budget, self.min_per_s, now_ns)

    def choose(self, RouteRequest request not None, uint64_t now_ns, int times=1):
        """The slot that would be chosen, `times` over without taking it: so the cost of a decision
        can be measured.
        """
        cdef served *m = self.models[request.model] if 0 <= request.model < FLEET_MODELS else NULL
        cdef lb_request q
        cdef lb_pool pool
        cdef int _, place = 0
        if m == NULL or m.count == 0:
            return None
        self._renew(now_ns)
        for _ in range(times):
            if self._admit(m, request, NULL) == 0:
                return None
            self._pool(m, request, &q, &pool)
            place = lb_pick(self.ops, &pool, &q, self.score).place
        return self.room.slot[place]

    def learned(self, int group):
        """What is learned of a group of models."""
        cdef rates *r = &self.groups[group]
        return {"base_step_s": r.base_s, "step_s_per_sequence": r.seq_s,
                "prefill_tokens_per_s": 1 / r.token_s,
                "output_tokens": r.output_tokens, "uncached_tokens": r.uncached_tokens,
                "pace_samples": r.pace_samples, "prefill_samples": r.prefill_samples,
                "prompt_token_weights": [r.token_weights[i] for i in range(FLEET_FEATURES)]}

    def explain(self, RouteRequest request not None, uint64_t now_ns):
        """What would be chosen for a request and why, by slot; changes nothing, in this process or
        in the segment.
        """
        cdef served *m = self.models[request.model] if 0 <= request.model < FLEET_MODELS else NULL
        cdef lb_request q
        cdef lb_pool pool
        cdef lb_choice choice
        cdef rng chance = self.chance
        cdef cost_terms t
        cdef int i, slot
        cdef double hit
        found = {"policy": POLICIES[self.policy], "slot": None, "reason": "no_replica",
                 "replicas": []}
        if m == NULL or m.count == 0:
            return {**found, "estimate": {"prompt_tokens": request.prompt_tokens,
                                          "output_tokens": 0.0}, "learned": {}}
        self._renew(now_ns)
        self._admit(m, request, self.why)
        whys = [self.why[i] for i in range(m.count)]
        if self.room.count:
            self._pool(m, request, &q, &pool)
            pool.rng = &chance
            choice = lb_pick(self.ops, &pool, &q, self.score)
            scores = {self.room.slot[i]: self.score[i] for i in range(pool.count)}
            found["slot"] = self.room.slot[choice.place]
            found["reason"] = REASONS[choice.reason]
        else:
            scores = {}
            found["reason"] = "overloaded" if self._verdict() == OVERLOADED else "no_replica"
            self._pool(m, request, &q, &pool)
        prefix_lookup(&self.table, request.prefix, request.prefix_count, m.slots, m.count,
                      self.seen.prefix_blocks, self.match)
        for i in range(m.count):
            slot = m.slots[i]
            hit = cost_hit_tokens(q.cost.prompt_tokens, q.block_tokens, self.match.blocks[slot],
                                  self.match.age[slot])
            cost_explain(self.seen, &self.groups[m.group], slot, self.typical[m.group], &q.cost,
                         hit, &t)
            found["replicas"].append({
                "slot": slot, "eligible": slot in scores, "why": ADMISSIONS[whys[i]],
                "score": scores.get(slot),
                "terms": {
                    "step_s": t.step, "pending_s": t.pending, "prefill_s": t.prefill,
                    "balance_s": t.balance,
                    "kv_s": t.kv, "uncached_s": t.uncached, "cost_s": t.total,
                    "hit_tokens": t.hit_tokens, "uncached_tokens": t.uncached_tokens,
                    "slowness": t.slowness,
                    "weight": self.seen.weight[slot], "requests": self.seen.requests[slot],
                    "sequences": self.seen.seqs[slot], "decoding": self.seen.decoding[slot],
                    "foreign_sequences": self.seen.foreign_seqs[slot],
                    "foreign_waiting": self.seen.foreign_waiting[slot],
                    "pending_tokens": self.seen.pending_tokens[slot],
                    "kv_tokens": self.seen.kv_tokens[slot],
                    "kv_capacity_tokens": self.seen.kv_capacity[slot] or None,
                },
            })
        found["estimate"] = {"prompt_tokens": q.cost.prompt_tokens,
                             "output_tokens": q.cost.output_tokens}
        found["learned"] = self.learned(m.group)
        return found


cdef served *new_served(int group, int count) except NULL:
    cdef served *m = <served *>zeros(1, sizeof(served))
    m.group, m.count = group, count
    m.slots = <uint16_t *>zeros(count + 1, sizeof(uint16_t))
    m.pairs = <uint16_t *>zeros(count + 1, sizeof(uint16_t))
    m.turns = <double *>zeros(count + 1, sizeof(double))
    m.speed = <double *>zeros(FLEET_SLOTS, sizeof(double))
    return m


cdef void free_served(served *m) noexcept:
    if m == NULL:
        return
    free(m.slots)
    free(m.pairs)
    free(m.turns)
    free(m.speed)
    free(m.ring.points)
    free(m)
