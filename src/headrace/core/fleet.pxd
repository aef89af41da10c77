"""The segment as C sees it (csrc/fleet.h): declarations only."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "hist.h" nogil:
    enum:
        HIST_BUCKETS
        HIST_KINDS
        HIST_DURATION
        HIST_TTFT
        HIST_TPOT
        HIST_ITL
        HIST_QUEUE_WAIT
        HIST_OVERHEAD
        HIST_PROBE
    struct hist:
        double sum
        uint64_t bucket[24]
    const double *hist_bounds(int kind)
    void hist_record(hist *h, int kind, double seconds)
    void hist_merge(hist *dst, const hist *src)

cdef extern from "atom.h" nogil:
    uint32_t atom_u32(const uint32_t *p)
    int32_t atom_i32(const int32_t *p)
    uint64_t atom_u64(const uint64_t *p)
    int64_t atom_i64(const int64_t *p)
    double atom_f64(const double *p)
    void atom_set_u32(uint32_t *p, uint32_t v)
    void atom_set_u64(uint64_t *p, uint64_t v)
    void atom_set_f64(double *p, double v)
    void atom_add_u32(uint32_t *p, uint32_t d)
    void atom_add_i32(int32_t *p, int32_t d)
    void atom_add_u64(uint64_t *p, uint64_t d)
    void atom_add_i64(int64_t *p, int64_t d)
    void atom_add_f64(double *p, double d)

cdef extern from "ring.h" nogil:
    struct ring:
        uint64_t head
        uint64_t dropped
        uint64_t tail
    int ring_push(ring *r, uint32_t kind, const void *record, uint32_t len)
    int32_t ring_pop(ring *r, uint32_t *kind, void *out, uint32_t room)

cdef extern from "series.h" nogil:
    enum:
        SERIES_SLOTS
        SERIES_REQUESTS
        SERIES_DECISIONS
        SERIES_REJECTED
        SERIES_RETRIES
        SERIES_OTHER
    struct series:
        uint64_t key
        uint64_t count
    uint64_t series_key(int kind, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
    void series_add(series *table, uint64_t key, uint64_t n)

cdef extern from "fleet.h" nogil:
    enum:
        FLEET_VERSION
        FLEET_SLOTS
        FLEET_PAIRS
        FLEET_MODELS
        FLEET_GROUPS
        FLEET_PROCESSES
        FLEET_BLOB_BYTES
        FLEET_OUT_BUCKETS
        FLEET_FEATURES
        OUTCOME_OK
        OUTCOME_CLIENT_ERROR
        OUTCOME_UPSTREAM_ERROR
        OUTCOME_INCOMPLETE
        OUTCOME_TIMEOUT
        OUTCOME_CLIENT_CLOSED
        OUTCOME_REJECTED
        OUTCOMES
        FAILURE_REFUSED
        FAILURE_CONNECT_TIME
        FAILURE_RESET
        FAILURE_STALE
        FAILURE_5XX
        FAILURE_CUT
        FAILURE_TIMEOUT
        FAILURE_ERROR_EVENT
        FAILURE_GOING_AWAY
        FAILURE_OVERLOADED
        FAILURES
        ROW_USED
        ROW_ELIGIBLE
        ROW_TRICKLE
        ROW_FOLLOWED
    struct row:
        uint32_t seq, generation, flags
        int32_t max_concurrency, max_queue, running, waiting
        double weight, ramp, foreign_seqs, foreign_waiting, kv_usage, hit_ratio
        int64_t kv_capacity_tokens
        uint64_t scraped_at_ns
    struct cell:
        uint32_t generation
        int32_t requests, seqs, decoding
        double pending_tokens, pending_s, kv_tokens, inflight_tokens
        uint64_t busy_since_ns, progress_ns
        uint64_t sent, succeeded, ok_ns, failed_ns
        uint32_t fail_streak
        uint64_t cancelled, neutral
        uint64_t failures[10]
        uint64_t completed_tokens
        double slow_w, slow_wx
        uint64_t slow_at_ns, clean_at_ns
        uint32_t slow_generation
    struct pair_cell:
        int32_t requests
        double inflight_tokens
        hist ttft
    struct model_cell:
        int32_t queued
        uint64_t prompt_tokens, completion_tokens, estimated_prompt_tokens, cached_tokens
        hist duration, tpot, itl, queue_wait
    struct group_cell:
        uint64_t pace_samples, prefill_samples
        double pace[5]
        double prefill[5]
        double out_w[18]
        double out_wx[18]
        double uncached_w, uncached_wx
        double token_w
        double token_xx[78]
        double token_xy[12]
    struct process_cell:
        uint64_t pid, beat_ns
        int64_t requests, queued, held, connections, buffered_bytes
        uint32_t draining, blob_seen
        uint64_t accepted, row_misses, bad_http
        hist overhead
    struct process_block:
        process_cell self
        cell cells[1024]
        pair_cell pairs[4096]
        model_cell models[256]
        group_cell groups[64]
        series series[4096]
    struct fleet:
        uint32_t processes
        uint64_t bytes, prefix_bytes
        uint64_t blob_generation
        uint64_t blob_bytes[2]
        uint64_t control_beat_ns
        uint32_t draining, serving
        uint64_t shared_budget
    uint64_t fleet_size(uint32_t processes, uint64_t prefix_bytes)
    void fleet_init(fleet *f, uint32_t processes, uint64_t prefix_bytes)
    int fleet_check(const fleet *f, uint64_t bytes)
    row *fleet_row(fleet *f, uint32_t slot)
    uint64_t *fleet_inserted(fleet *f, uint32_t slot)
    process_block *fleet_block(fleet *f, uint32_t process)
    ring *fleet_ring(fleet *f, uint32_t process)
    void *fleet_prefix(fleet *f)
    char *fleet_blob(fleet *f, uint32_t buffer)
    void row_write(row *r, const row *src)
    int row_read(const row *r, row *out)
    void fleet_retire(fleet *f, uint32_t process)
    int64_t fleet_requests(fleet *f, uint32_t slot)
    void fleet_sum_model(fleet *f, uint32_t model, model_cell *total)
    void fleet_sum_pair(fleet *f, uint32_t pair, pair_cell *total)
