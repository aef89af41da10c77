cimport cython
from libc.math cimport fmax, fmin
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from headrace.core.fleet cimport *
from headrace.core.lb cimport *
from headrace.core.segment cimport Segment

cdef uint64_t LEARN_PERIOD_NS = 10_000_000


cdef void *zeros(size_t n, size_t size) except NULL:
    cdef void *p = calloc(n, size)
    if p == NULL:
        raise MemoryError
    return p


# Open leases write to the segment when they go: the collector may not take it away first.
@cython.no_gc_clear
cdef class Books:
    def __cinit__(self, Segment segment not None, int process):
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
        self.oldest = <void **>zeros(FLEET_SLOTS, sizeof(void *))
        self.newest = <void **>zeros(FLEET_SLOTS, sizeof(void *))
        self.moved = True
        view_init(self.seen, process if process < segment.processes else -1)
        for i in range(FLEET_GROUPS):
            learn_init(&self.groups[i])
            self.typical[i] = 1
        for i in range(FLEET_SLOTS):
            self.ids[i] = hash_mix(i, 0)

    def __dealloc__(self):
        cdef int i
        if self.models:
            for i in range(FLEET_MODELS):
                free_served(self.models[i])
        for p in (<size_t>self.seen, <size_t>self.groups, <size_t>self.typical,
                  <size_t>self.models, <size_t>self.ids, <size_t>self.oldest,
                  <size_t>self.newest, <size_t>self.plain.entries):
            free(<void *><size_t>p)

    # ---- who serves what

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

    cdef served *served_by(self, int model) noexcept:
        cdef served *m = self.models[model] if 0 <= model < FLEET_MODELS else NULL
        return m if m != NULL and m.count else NULL

    # ---- what is known now

    def forget_view(self):
        """Rows have changed: the next decision reads them, whenever it comes."""
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

    cdef void renew(self, uint64_t now_ns):
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

    cdef const double *speeds_of(self, served *m) noexcept:
        if m.speed_version != self.renewals:
            m.speed_version = self.renewals
            cost_speeds(self.seen, m.slots, m.count, self.typical[m.group], m.speed)
        return m.speed

    cdef chash *ring_of(self, served *m) except NULL:
        cdef uint64_t version = self.seen.weights_version + self.ids_version
        cdef double w, most = 1, scale
        cdef uint32_t n = 0, k
        cdef int i
        cdef chash_point *scratch
        if m.ring.points and m.ring_version == version:
            return &m.ring
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
        return &m.ring

    def learned(self, int group):
        """What is learned of a group of models."""
        cdef rates *r = &self.groups[group]
        return {"base_step_s": r.base_s, "step_s_per_sequence": r.seq_s,
                "prefill_tokens_per_s": 1 / r.token_s,
                "output_tokens": r.output_tokens, "uncached_tokens": r.uncached_tokens,
                "pace_samples": r.pace_samples, "prefill_samples": r.prefill_samples,
                "prompt_token_weights": [r.token_weights[i] for i in range(FLEET_FEATURES)]}


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
