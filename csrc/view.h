/* What one process sees of the fleet: dense arrays over slots, made for the loop of a policy.
 *
 * Rows and the other processes' sums are copied at most every view_period; the process's own claims
 * are added as they happen (claim.h), so they are exact. All numbers are sane: what a row says
 * wrongly or not at all is neutral here. */
#ifndef HEADRACE_VIEW_H
#define HEADRACE_VIEW_H

#include "fleet.h"

/* What admission has to look at: most replicas most of the time are plain. */
enum view_kind {
    VIEW_PLAIN,   /* eligible, its load alone decides */
    VIEW_OUT,     /* not eligible */
    VIEW_SPECIAL, /* half-open, in slow start, with a long queue, or without weight */
};

struct view {
    int32_t process; /* whose own cells these are; -1: a reader without any */
    uint32_t count;
    uint64_t renewed_ns;
    uint64_t weights_version;    /* counts changes of any weight */
    uint64_t misses;             /* rows that could not be read */
    uint16_t slots[FLEET_SLOTS]; /* the first `count`: those that are kept up to date */
    /* rows */
    uint32_t seq[FLEET_SLOTS];
    uint32_t generation[FLEET_SLOTS];
    uint32_t flags[FLEET_SLOTS];
    int32_t max_concurrency[FLEET_SLOTS];
    int32_t max_queue[FLEET_SLOTS]; /* 0: off */
    int32_t waiting[FLEET_SLOTS];   /* -1: unknown */
    double weight[FLEET_SLOTS];     /* finite, >= 0 */
    double ramp[FLEET_SLOTS];       /* 0 … 1 */
    double foreign_seqs[FLEET_SLOTS], foreign_waiting[FLEET_SLOTS];
    double kv_capacity[FLEET_SLOTS];  /* tokens; 0: unknown */
    double kv_per_token[FLEET_SLOTS]; /* 1 / kv_capacity, 0 likewise */
    uint8_t kind[FLEET_SLOTS];        /* enum view_kind */
    int32_t specials;                 /* slots of that kind */
    double overload_ratio;
    int32_t limit[FLEET_SLOTS]; /* requests in flight up to which it takes more */
    uint32_t prefix_blocks[FLEET_SLOTS];
    /* sums over the processes */
    int32_t requests[FLEET_SLOTS], seqs[FLEET_SLOTS], decoding[FLEET_SLOTS];
    double pending_s[FLEET_SLOTS], pending_tokens[FLEET_SLOTS], kv_tokens[FLEET_SLOTS];
    /* slowness as last learned, not yet relative to the group, and how fresh that is: 1 … 0 */
    double slow[FLEET_SLOTS];
    double slow_fresh[FLEET_SLOTS];
    /* a first token or a pending prefill was seen at this time: a token gap across it is no clean
     * sample */
    uint64_t disturbed_ns[FLEET_SLOTS];
    /* completions, for Retry-After */
    uint64_t rated_ns;
    uint64_t done[FLEET_SLOTS];
    double done_per_s[FLEET_SLOTS];
};

void view_init(struct view *v, int32_t process);

/* admission.overload_ratio; takes effect with the next renewal. */
void view_set_ratio(struct view *v, double overload_ratio);

/* Which slots to keep up to date; the rest of a slot's state survives. */
void view_use(struct view *v, const uint16_t *slots, uint32_t count);

/* Renewal costs some 20 ns a (slot, process); this keeps it below 5 % of the time. */
uint64_t view_period_ns(const struct view *v, const struct fleet *f);

/* Copies rows and sums at now_ns, whatever the time of the last renewal. Writes nothing to the
 * segment. */
void view_renew(struct view *v, struct fleet *f, uint64_t now_ns);

static inline int view_is_due(const struct view *v, const struct fleet *f, uint64_t now_ns)
{
    return now_ns - v->renewed_ns >= view_period_ns(v, f);
}

/* Sequences in flight on a slot, everybody's. */
static inline double view_load(const struct view *v, uint32_t slot)
{
    return v->seqs[slot] + v->foreign_seqs[slot];
}

#endif
