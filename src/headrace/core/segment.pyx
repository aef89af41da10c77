import os

from libc.math cimport NAN, ceil
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.unistd cimport close, write
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from headrace.core.fleet cimport *
from headrace.core.lb cimport (
    PREFIX_MAX_BLOCKS,
    PREFIX_MAX_CAPACITY,
    PREFIX_MAX_JUMPS,
    learn_speed,
    learn_speed_add,
    learn_speed_value,
    prefix_advance,
    prefix_capacity,
    prefix_forget,
    prefix_insert,
    prefix_of,
    prefix_remove,
    prefix_sweep,
    prefix_table,
)

MAX_SLOTS = FLEET_SLOTS
MAX_PAIRS = FLEET_PAIRS
MAX_MODELS = FLEET_MODELS
MAX_GROUPS = FLEET_GROUPS
MAX_PROCESSES = FLEET_PROCESSES
MAX_BLOB_BYTES = FLEET_BLOB_BYTES
OUTCOME_NAMES = ("ok", "client_error", "upstream_error", "incomplete", "timeout", "client_closed",
                 "rejected")
FAILURE_NAMES = ("refused", "connect_timeout", "reset", "stale", "5xx", "cut", "timeout",
                 "error_event",
                 "going_away", "overloaded")
SIZES = {
    "row": sizeof(row), "cell": sizeof(cell), "pair cell": sizeof(pair_cell),
    "model cell": sizeof(model_cell), "group cell": sizeof(group_cell),
    "process cell": sizeof(process_cell), "series": sizeof(series), "histogram": sizeof(hist),
}
HIST_NAMES = ("duration", "ttft", "tpot", "itl", "queue_wait", "overhead", "probe")


cdef class Segment:
    def __cinit__(self):
        self.base = NULL
        self.fd = self.alarm_fd = -1

    def __dealloc__(self):
        if self.base is not NULL:
            munmap(self.base, self.bytes)
        if self.fd >= 0:
            close(self.fd)
        if self.alarm_fd >= 0:
            close(self.alarm_fd)

    @staticmethod
    def create(int processes, uint64_t prefix_bytes):
        cdef Segment s = Segment()
        if not 1 <= processes <= FLEET_PROCESSES:
            raise ValueError(f"processes: wanted {processes}, allowed 1 to {FLEET_PROCESSES}")
        s.bytes = fleet_size(processes, prefix_bytes)
        s.fd = os.memfd_create("headrace")
        s.alarm_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        os.ftruncate(s.fd, s.bytes)
        s._map()
        fleet_init(s.base, processes, prefix_bytes)
        memset(fleet_prefix(s.base), 0, prefix_bytes)
        s.processes = processes
        return s

    @staticmethod
    def attach(int fd, int alarm_fd=-1):
        cdef Segment s = Segment()
        s.fd = os.dup(fd)
        if alarm_fd >= 0:
            s.alarm_fd = os.dup(alarm_fd)
        s.bytes = os.fstat(fd).st_size
        s._map()
        if fleet_check(s.base, s.bytes) != 0:
            raise ValueError("the shared segment was made by another version of headrace")
        s.processes = s.base.processes
        return s

    def _map(self):
        cdef void *at = mmap(NULL, self.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if at == MAP_FAILED:
            raise MemoryError(f"cannot map {self.bytes} bytes")
        self.base = <fleet *>at

    cdef int _slot(self, int slot) except -1:
        if not 0 <= slot < FLEET_SLOTS:
            raise IndexError(f"slot: wanted {slot}, have 0 to {FLEET_SLOTS - 1}")
        return slot

    def layout(self):
        """{part: (offset, bytes)} of the mapping, in order."""
        cdef fleet *f = self.base
        cdef char *start = <char *>f
        cdef int i
        parts = {"header": (0, sizeof(fleet)),
                 "rows": (<char *>fleet_row(f, 0) - start, FLEET_SLOTS * sizeof(row)),
                 "insertion counters": (<char *>fleet_inserted(f, 0) - start,
                                        FLEET_SLOTS * sizeof(uint64_t))}
        for i in range(self.processes + 1):
            name = "archive" if i == self.processes else f"process {i}"
            parts[name] = (<char *>fleet_block(f, i) - start, sizeof(process_block))
        for i in range(self.processes):
            parts[f"ring {i}"] = (<char *>fleet_ring(f, i) - start, sizeof(ring))
        parts["prefix table"] = (<char *>fleet_prefix(f) - start, f.prefix_bytes)
        for i in range(2):
            parts[f"blob {i}"] = (fleet_blob(f, i) - start, FLEET_BLOB_BYTES)
        return parts

    # ---- rows: control writes

    def write_row(self, int slot, *, bint eligible, bint trickle=False, bint followed=False,
                  uint32_t generation, double weight=1.0, double ramp=1.0, int max_concurrency,
                  int max_queue=0, int running=-1, int waiting=-1, double foreign_seqs=0.0,
                  double foreign_waiting=0.0, double kv_usage=NAN, double hit_ratio=NAN,
                  int64_t kv_capacity_tokens=0, uint64_t scraped_at_ns=0, bint used=True):
        cdef row r
        memset(&r, 0, sizeof(r))
        self._slot(slot)
        r.generation = generation
        r.flags = ((ROW_USED if used else 0) | (ROW_ELIGIBLE if eligible else 0)
                   | (ROW_TRICKLE if trickle else 0) | (ROW_FOLLOWED if followed else 0))
        r.max_concurrency, r.max_queue = max_concurrency, max_queue
        r.running, r.waiting = running, waiting
        r.weight, r.ramp = weight, ramp
        r.foreign_seqs, r.foreign_waiting = foreign_seqs, foreign_waiting
        r.kv_usage, r.hit_ratio, r.kv_capacity_tokens = kv_usage, hit_ratio, kv_capacity_tokens
        r.scraped_at_ns = scraped_at_ns
        if fleet_row(self.base, slot).generation != generation:
            self._forget_prefixes(slot)
        row_write(fleet_row(self.base, slot), &r)

    def clear_row(self, int slot):
        """The replica is gone; the slot may be used again with a higher generation once
        requests(slot) is 0.
        """
        cdef row r
        memset(&r, 0, sizeof(r))
        r.generation = fleet_row(self.base, self._slot(slot)).generation
        row_write(fleet_row(self.base, slot), &r)

    def row(self, int slot):
        cdef row r
        if row_read(fleet_row(self.base, self._slot(slot)), &r) != 0:
            return None
        return {
            "used": bool(r.flags & ROW_USED), "eligible": bool(r.flags & ROW_ELIGIBLE),
            "trickle": bool(r.flags & ROW_TRICKLE), "followed": bool(r.flags & ROW_FOLLOWED),
            "generation": r.generation, "weight": r.weight,
            "ramp": r.ramp,
            "max_concurrency": r.max_concurrency, "max_queue": r.max_queue, "running": r.running,
            "waiting": r.waiting, "foreign_seqs": r.foreign_seqs,
            "foreign_waiting": r.foreign_waiting,
            "kv_usage": r.kv_usage, "hit_ratio": r.hit_ratio,
            "kv_capacity_tokens": r.kv_capacity_tokens,
            "scraped_at_ns": r.scraped_at_ns,
        }

    # ---- prefix table: control forgets, sweeps, and takes in what an engine tells of its cache

    cdef int _forget_prefixes(self, int slot) except -1:
        """A new generation holds nothing of what the old one had; rarely (after many in a row) this
        has to sweep at once.
        """
        cdef prefix_table t = prefix_of(self.base)
        if self.jumps[slot] == PREFIX_MAX_JUMPS:
            self._sweep(0, t.sets)
            memset(self.jumps, 0, sizeof(self.jumps))
            memset(self.old_jumps, 0, sizeof(self.old_jumps))
            self.swept = 0
        prefix_forget(&t, slot)
        self.jumps[slot] += 1
        return 0

    cdef void _capacities(self, uint32_t *capacity) noexcept:
        cdef int i
        for i in range(FLEET_SLOTS):
            capacity[i] = prefix_capacity(fleet_row(self.base, i).kv_capacity_tokens)

    cdef uint64_t _sweep(self, uint64_t start, uint64_t count):
        cdef prefix_table t = prefix_of(self.base)
        cdef uint32_t capacity[FLEET_SLOTS]
        self._capacities(capacity)
        return prefix_sweep(&t, start, count, capacity)

    def store_prefixes(self, int slot, keys, uint64_t blocks):
        cdef prefix_table t = prefix_of(self.base)
        cdef uint32_t capacity[FLEET_SLOTS]
        cdef uint64_t found[PREFIX_MAX_BLOCKS]
        cdef int i = 0
        self._slot(slot)
        self._capacities(capacity)
        prefix_advance(&t, slot, <uint32_t>min(blocks, <uint64_t>PREFIX_MAX_CAPACITY))
        for key in keys:
            found[i] = key
            i += 1
            if i == PREFIX_MAX_BLOCKS:
                prefix_insert(&t, found, i, slot, 0, capacity)
                i = 0
        prefix_insert(&t, found, i, slot, 0, capacity)

    def remove_prefixes(self, int slot, keys):
        cdef prefix_table t = prefix_of(self.base)
        cdef uint64_t one
        self._slot(slot)
        for key in keys:
            one = key
            prefix_remove(&t, &one, 1, slot)

    def sweep_prefixes(self, double part=1 / 64):
        """Frees dead entries in the next part of the table; control calls it each second, so that
        the whole is seen in about a minute.

        Args:
            part: of the table, 0 to 1.

        Returns:
            How many of the entries looked at are alive.
        """
        cdef uint64_t sets = prefix_of(self.base).sets
        cdef uint64_t n = min(<uint64_t>ceil(sets * part), sets - self.swept)
        alive = self._sweep(self.swept, n)
        self.swept += n
        if self.swept == sets:
            self.swept = 0
            # What was forgotten before this round began is gone; what came during it counts on.
            for i in range(FLEET_SLOTS):
                self.jumps[i] -= self.old_jumps[i]
                self.old_jumps[i] = self.jumps[i]
        return alive

    # ---- cells: sums over processes

    def requests(self, int slot):
        return fleet_requests(self.base, self._slot(slot))

    def cell(self, int slot):
        """Everything of one replica, summed over the processes and the archive (gauges: the
        processes alone).
        """
        cdef cell *c
        cdef uint32_t p
        cdef int i
        cdef uint64_t sent = 0, succeeded = 0, ok_ns = 0, failed_ns = 0, cancelled = 0
        cdef uint64_t neutral = 0, tokens = 0
        cdef uint64_t busy = 0, progress = 0
        cdef int64_t requests = 0, seqs = 0, decoding = 0, streak = 0
        cdef double pending = 0, kv = 0, inflight_tokens = 0
        failures = [0] * FAILURES
        self._slot(slot)
        for p in range(self.base.processes + 1):
            c = &fleet_block(self.base, p).cells[slot]
            sent += atom_u64(&c.sent)
            succeeded += atom_u64(&c.succeeded)
            cancelled += atom_u64(&c.cancelled)
            neutral += atom_u64(&c.neutral)
            tokens += atom_u64(&c.completed_tokens)
            ok_ns = max(ok_ns, atom_u64(&c.ok_ns))
            failed_ns = max(failed_ns, atom_u64(&c.failed_ns))
            for i in range(FAILURES):
                failures[i] += atom_u64(&c.failures[i])
            if p == self.base.processes:
                break
            if atom_i32(&c.requests) > 0 and (busy == 0 or atom_u64(&c.busy_since_ns) < busy):
                busy = atom_u64(&c.busy_since_ns)
            progress = max(progress, atom_u64(&c.progress_ns))
            requests += atom_i32(&c.requests)
            seqs += atom_i32(&c.seqs)
            decoding += atom_i32(&c.decoding)
            streak += atom_u32(&c.fail_streak)
            pending += atom_f64(&c.pending_tokens)
            kv += atom_f64(&c.kv_tokens)
            inflight_tokens += atom_f64(&c.inflight_tokens)
        return {
            "requests": requests, "seqs": seqs, "decoding": decoding, "pending_tokens": pending,
            "kv_tokens": kv,
            "inflight_tokens": inflight_tokens, "busy_since_ns": busy, "progress_ns": progress,
            "sent": sent,
            "succeeded": succeeded, "cancelled": cancelled, "neutral": neutral, "ok_ns": ok_ns,
            "failed_ns": failed_ns, "fail_streak": streak,
            "failures": dict(zip(FAILURE_NAMES, failures)),
            "completed_tokens": tokens,
        }

    def evidence(self, int slot, uint32_t generation=0, uint64_t now_ns=0):
        """What health judges a replica by, summed over the processes (counters: and the archive):
        succeeded, failed, refused,
        going away, fail streak, requests, seqs, decoding, progress_ns, busy_since_ns, pending_s;
        and of that generation's
        speed: how much is known of it (1: enough) and its slowness."""
        cdef cell *c
        cdef uint32_t p
        cdef int i
        cdef uint64_t succeeded = 0, failed = 0, refused = 0, leaving = 0
        cdef uint64_t streak = 0, progress = 0, busy = 0, since
        cdef int64_t requests = 0, seqs = 0, decoding = 0
        cdef double pending_s = 0
        cdef learn_speed speed
        memset(&speed, 0, sizeof(speed))
        self._slot(slot)
        for p in range(self.base.processes + 1):
            c = &fleet_block(self.base, p).cells[slot]
            succeeded += atom_u64(&c.succeeded)
            refused += atom_u64(&c.failures[FAILURE_REFUSED])
            refused += atom_u64(&c.failures[FAILURE_CONNECT_TIME])
            leaving += atom_u64(&c.failures[FAILURE_GOING_AWAY])
            for i in range(FAILURES):
                if i != FAILURE_STALE and i != FAILURE_OVERLOADED and i != FAILURE_GOING_AWAY:
                    failed += atom_u64(&c.failures[i])
            if p == self.base.processes:
                break
            if atom_i32(&c.requests) > 0:
                since = atom_u64(&c.busy_since_ns)
                busy = since if busy == 0 or since < busy else busy
            streak += atom_u32(&c.fail_streak)
            progress = max(progress, atom_u64(&c.progress_ns))
            requests += atom_i32(&c.requests)
            seqs += atom_i32(&c.seqs)
            decoding += atom_i32(&c.decoding)
            pending_s += atom_f64(&c.pending_s)
            learn_speed_add(&speed, c, generation, now_ns)
        return (succeeded, failed, refused, leaving, streak, requests, seqs, decoding, progress,
                busy, pending_s,
                speed.w, learn_speed_value(&speed))

    cpdef void alarm(self) noexcept:
        cdef uint64_t one = 1
        if self.alarm_fd >= 0 and write(self.alarm_fd, &one, sizeof(one)) < 0:
            pass  # it is readable already

    # ---- processes

    def process(self, int process):
        cdef process_cell *c = &fleet_block(self.base, process).self
        return {"pid": c.pid, "beat_ns": c.beat_ns, "requests": c.requests, "queued": c.queued,
                "held": c.held,
                "connections": c.connections, "buffered_bytes": c.buffered_bytes,
                "draining": bool(c.draining),
                "blob_seen": c.blob_seen, "accepted": c.accepted, "row_misses": c.row_misses,
                "bad_http": c.bad_http, "dropped": fleet_ring(self.base, process).dropped
                if process < self.processes else 0}

    def retire(self, int process):
        fleet_retire(self.base, process)

    # ---- metrics

    def counters(self):
        """{packed key: count} over all processes; unpack with `unpack_series`."""
        cdef series *table
        cdef uint32_t p
        cdef int i
        cdef uint64_t key
        total = {}
        for p in range(self.base.processes + 1):
            table = fleet_block(self.base, p).series
            for i in range(SERIES_SLOTS):
                key = atom_u64(&table[i].key)
                if key:
                    total[key] = total.get(key, 0) + atom_u64(&table[i].count)
        return total

    cdef object _hist(self, hist *h, int kind):
        cdef const double *bounds = hist_bounds(kind)
        cdef int i
        return {"sum": h.sum, "bounds": [bounds[i] for i in range(HIST_BUCKETS - 1)],
                "buckets": [h.bucket[i] for i in range(HIST_BUCKETS)]}

    cdef int sum_model(self, int model, model_cell *total) except -1:
        if not 0 <= model < FLEET_MODELS:
            raise IndexError(f"model: wanted {model}, have 0 to {FLEET_MODELS - 1}")
        fleet_sum_model(self.base, model, total)
        return 0

    cdef int sum_pair(self, int pair, pair_cell *total) except -1:
        if not 0 <= pair < FLEET_PAIRS:
            raise IndexError(f"pair: wanted {pair}, have 0 to {FLEET_PAIRS - 1}")
        fleet_sum_pair(self.base, pair, total)
        return 0

    def model(self, int model):
        """Counters and histograms of one model id over all processes."""
        cdef model_cell total
        self.sum_model(model, &total)
        return {
            "queued": total.queued, "prompt_tokens": total.prompt_tokens,
            "completion_tokens": total.completion_tokens, "cached_tokens": total.cached_tokens,
            "estimated_prompt_tokens": total.estimated_prompt_tokens,
            "duration": self._hist(&total.duration, HIST_DURATION),
            "tpot": self._hist(&total.tpot, HIST_TPOT),
            "itl": self._hist(&total.itl, HIST_ITL),
            "queue_wait": self._hist(&total.queue_wait, HIST_QUEUE_WAIT),
        }

    def pair(self, int pair):
        """In-flight gauges and the TTFT histogram of one (slot, model) pair over all processes."""
        cdef pair_cell total
        self.sum_pair(pair, &total)
        return {"requests": total.requests, "inflight_tokens": total.inflight_tokens,
                "ttft": self._hist(&total.ttft, HIST_TTFT)}

    def totals(self, pairs, models):
        """TTFT of all these pairs together, TPOT and number of requests of all these models."""
        cdef hist ttft, tpot, duration
        cdef process_block *b
        cdef uint32_t p
        cdef int i
        memset(&ttft, 0, sizeof(ttft))
        memset(&tpot, 0, sizeof(tpot))
        memset(&duration, 0, sizeof(duration))
        for p in range(self.base.processes + 1):
            b = fleet_block(self.base, p)
            for pair in pairs:
                if not 0 <= pair < FLEET_PAIRS:
                    raise IndexError(f"pair: wanted {pair}, have 0 to {FLEET_PAIRS - 1}")
                hist_merge(&ttft, &b.pairs[<int>pair].ttft)
            for model in models:
                if not 0 <= model < FLEET_MODELS:
                    raise IndexError(f"model: wanted {model}, have 0 to {FLEET_MODELS - 1}")
                hist_merge(&tpot, &b.models[<int>model].tpot)
                hist_merge(&duration, &b.models[<int>model].duration)
        return {"ttft": self._hist(&ttft, HIST_TTFT), "tpot": self._hist(&tpot, HIST_TPOT),
                "requests": sum([duration.bucket[i] for i in range(HIST_BUCKETS)])}

    # ---- blob: control publishes, processes read

    def publish(self, bytes blob not None):
        cdef uint64_t generation = self.base.blob_generation + 1
        if len(blob) > FLEET_BLOB_BYTES:
            raise ValueError(f"configuration and replica list: {len(blob)} bytes, "
                             f"limit {FLEET_BLOB_BYTES}")
        memcpy(fleet_blob(self.base, generation & 1), <const char *>blob, len(blob))
        self.base.blob_bytes[generation & 1] = len(blob)
        atom_set_u64(&self.base.blob_generation, generation)
        return generation

    @property
    def blob_generation(self):
        return atom_u64(&self.base.blob_generation)

    def blob(self):
        """(generation, bytes) of the blob in force; None before the first one or while control is
        too fast for us.
        """
        cdef uint64_t generation
        for _ in range(4):
            generation = atom_u64(&self.base.blob_generation)
            if generation == 0:
                return None
            copy = fleet_blob(self.base, generation & 1)[:self.base.blob_bytes[generation & 1]]
            if atom_u64(&self.base.blob_generation) == generation:
                return generation, copy
        return None

    # ---- flags

    @property
    def draining(self):
        return bool(atom_u32(&self.base.draining))

    @draining.setter
    def draining(self, bint value):
        atom_set_u32(&self.base.draining, value)

    @property
    def serving(self):
        return atom_u32(&self.base.serving)

    @serving.setter
    def serving(self, uint32_t value):
        atom_set_u32(&self.base.serving, value)

    def beat(self, uint64_t now_ns):
        atom_set_u64(&self.base.control_beat_ns, now_ns)


def unpack_series(key):
    """(kind, a, b, c, d) of a key of Segment.counters()."""
    return key >> 56, key >> 40 & 0xffff, key >> 28 & 0xfff, key >> 16 & 0xfff, key & 0xffff
