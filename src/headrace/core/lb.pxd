"""The routing library as C sees it: declarations only; the headers in csrc/ are the text."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from headrace.core.fleet cimport cell, fleet, group_cell, process_block


cdef extern from "rng.h" nogil:
    struct rng:
        uint64_t state
    double rng_unit(rng *r)

cdef extern from "hash.h" nogil:
    uint64_t hash_bytes(const void *data, size_t size, uint64_t seed)
    uint64_t hash_mix(uint64_t a, uint64_t b)

cdef extern from "budget.h" nogil:
    void budget_deposit(uint64_t *word, double ratio, double min_per_s, uint64_t now_ns)
    int budget_withdraw(uint64_t *word, double min_per_s, uint64_t now_ns)
    double budget_balance(const uint64_t *word, double min_per_s, uint64_t now_ns)

cdef extern from "view.h" nogil:
    struct view:
        int32_t process
        uint32_t count
        uint64_t renewed_ns, weights_version, misses
        uint16_t slots[1024]
        uint32_t generation[1024]
        uint32_t flags[1024]
        int32_t max_concurrency[1024]
        double weight[1024]
        double ramp[1024]
        double foreign_seqs[1024]
        double foreign_waiting[1024]
        double kv_capacity[1024]
        int32_t limit[1024]
        uint32_t prefix_blocks[1024]
        int32_t requests[1024]
        int32_t seqs[1024]
        int32_t decoding[1024]
        double pending_s[1024]
        double pending_tokens[1024]
        double kv_tokens[1024]
        double slow[1024]
        double slow_fresh[1024]
        uint64_t disturbed_ns[1024]
        double done_per_s[1024]
    void view_init(view *v, int32_t process)
    void view_set_ratio(view *v, double overload_ratio)
    void view_use(view *v, const uint16_t *slots, uint32_t count)
    bint view_is_due(const view *v, const fleet *f, uint64_t now_ns)
    void view_renew(view *v, fleet *f, uint64_t now_ns)
    double view_load(const view *v, uint32_t slot)

cdef extern from "learn.h" nogil:
    struct rates:
        double base_s, seq_s, token_s, first_s, output_tokens, uncached_tokens
        double token_weights[12]
        uint64_t pace_samples, prefill_samples
    void learn_init(rates *r)
    void learn_refresh(rates *r, fleet *f, uint32_t group)
    double learn_pace_s(const rates *r, double n)
    double learn_output(const rates *r, int64_t max_tokens)
    double learn_prompt_tokens(const rates *r, const double *features)
    void learn_gap(group_cell *g, double n, double y)
    void learn_prefill(group_cell *g, double x, double y)
    void learn_finish(group_cell *g, int64_t max_tokens, double output_tokens)
    void learn_uncached(group_cell *g, double tokens)
    void learn_prompt(group_cell *g, const double *features, double tokens)
    void learn_slowness(cell *c, uint32_t generation, double gap_s, double pace_s, double weight,
                        double typical, uint64_t now_ns)
    struct learn_speed:
        double w
    void learn_speed_add(learn_speed *s, const cell *c, uint32_t generation, uint64_t now_ns)
    double learn_speed_value(const learn_speed *s)

cdef extern from "tokens.h" nogil:
    enum:
        TOKEN_LETTERS
        TOKEN_WORDS
        TOKEN_DIGITS
        TOKEN_SPACES
        TOKEN_SPACE_RUNS
        TOKEN_MARKS
        TOKEN_MARK_RUNS
        TOKEN_LATIN
        TOKEN_CJK
        TOKEN_OTHER
        TOKEN_MESSAGES
        TOKEN_EXACT
        TOKENS_PER_IMAGE
    const double *tokens_prior
    double tokens_estimate(const double *weights, const double *features)

cdef extern from "claim.h" nogil:
    struct claim:
        uint16_t slot
        uint16_t pair
        int32_t sequences
        uint32_t generation
        uint8_t open
        uint8_t decoding
        double uncached_tokens, prefill_s, kv_tokens, inflight_tokens
    void claim_open(claim *c, process_block *b, view *v, uint64_t now_ns)
    void claim_decode(claim *c, process_block *b, view *v, uint64_t now_ns)
    void claim_grow(claim *c, process_block *b, view *v, double tokens)
    int claim_close(claim *c, process_block *b, view *v, uint64_t now_ns)

cdef extern from "due.h" nogil:
    struct due:
        uint64_t at_ns
        void *what
        int32_t *place
    struct due_heap:
        due *entries
        int32_t count, room
    int due_push(due_heap *h, due entry)
    void due_remove(due_heap *h, int32_t place)
    due *due_first(due_heap *h, uint64_t now_ns)

cdef extern from "admit.h" nogil:
    enum:
        ADMIT_YES
        ADMIT_TRIED
        ADMIT_NOT_ELIGIBLE
        ADMIT_TRICKLE
        ADMIT_OVERLOADED
        ADMIT_QUEUE
        ADMIT_SLOW_START
        ADMIT_NO_WEIGHT
        ADMITS
    const char *const *admit_names
    struct admit_rules:
        const uint16_t *tried
        int tried_count
    struct admitted:
        int count
        int by[8]
        uint16_t index[1024]
        uint16_t slot[1024]
    void admit_all(const view *v, const uint16_t *slots, int n, const admit_rules *rules,
                   admitted *out, uint8_t *why)

cdef extern from "prefix.h" nogil:
    enum:
        PREFIX_BLOCK_TOKENS
        PREFIX_MAX_BLOCKS
        PREFIX_MAX_CAPACITY
        PREFIX_MAX_JUMPS
    struct prefix_table:
        uint64_t *entries
        uint64_t sets
        uint64_t *inserted
    struct prefix_match:
        uint16_t blocks[1024]
        float age[1024]
    prefix_table prefix_of(fleet *f)
    uint32_t prefix_capacity(int64_t kv_capacity_tokens)
    void prefix_lookup(const prefix_table *t, const uint64_t *keys, int count,
                       const uint16_t *slots,
                       int n, const uint32_t *capacity, prefix_match *out)
    void prefix_insert(const prefix_table *t, const uint64_t *keys, int count, uint32_t slot,
                       uint32_t added, const uint32_t *capacity)
    void prefix_advance(const prefix_table *t, uint32_t slot, uint32_t blocks)
    void prefix_forget(const prefix_table *t, uint32_t slot)
    void prefix_remove(const prefix_table *t, const uint64_t *keys, int count, uint32_t slot)
    uint64_t prefix_sweep(const prefix_table *t, uint64_t start, uint64_t n,
                          const uint32_t *capacity)

cdef extern from "chash.h" nogil:
    struct chash_point:
        uint64_t hash
        uint32_t slot
    struct chash:
        chash_point *points
        uint32_t count
    uint32_t chash_points(double weight)
    void chash_fill(chash_point *out, uint32_t n, uint64_t id, uint32_t slot)
    void chash_sort(chash_point *points, uint32_t count, chash_point *scratch)

cdef extern from "cost.h" nogil:
    const double COST_HIT_KV
    struct cost_request:
        double prompt_tokens, output_tokens
        int32_t sequences
    struct cost_terms:
        double step, pending, prefill, balance, kv, uncached, total
        double hit_tokens, uncached_tokens, slowness
    double cost_slowness(const view *v, uint32_t slot, double typical)
    double cost_typical(const view *v, const uint16_t *slots, int n)
    double cost_block_tokens(double prompt_tokens, int blocks)
    double cost_hit_tokens(double prompt_tokens, double block_tokens, uint16_t blocks, float age)
    void cost_speeds(const view *v, const uint16_t *slots, int n, double typical, double *speed)
    double cost_first_token_s(const view *v, const rates *r, uint32_t slot, double speed,
                              double uncached_tokens)
    void cost_explain(const view *v, const rates *r, uint32_t slot, double typical,
                      const cost_request *q, double hit_tokens, cost_terms *out)

cdef extern from "lb.h" nogil:
    enum:
        LB_POLICIES
        LB_REASONS
        LB_RETRY
        LB_NEEDS_PREFIX
        LB_NEEDS_RING
        LB_NEEDS_TURNS
    struct lb_request:
        cost_request cost
        const uint64_t *prefix
        int prefix_count
        double block_tokens
        bint has_session
        uint64_t session
    struct lb_pool:
        const view *view
        const rates *rates
        const prefix_match *match
        const chash *ring
        const uint64_t *ids
        const uint16_t *slots
        double *turns
        int count
        const double *speed
        double load_factor
        int gateways
        rng *rng
    struct lb_choice:
        int place
        int reason
    struct lb_ops:
        const char *name
        int needs
    const lb_ops *lb_ops_of(int policy)
    const char *const *lb_reason_names
    lb_choice lb_pick(const lb_ops *ops, const lb_pool *p, const lb_request *q, double *score)
