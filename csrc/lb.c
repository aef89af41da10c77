#include "lb.h"

#include <string.h>

const char *const lb_reason_names[LB_REASONS] = {
    "only",   "turn",    "least_load", "chance",      "cost",
    "prefix", "session", "ring",       "last_resort", "retry",
};

static const struct lb_ops *const table[LB_POLICIES] = {
    [LB_COST_AWARE] = &lb_cost_aware,   [LB_CACHE_AWARE] = &lb_cache_aware,
    [LB_PREFIX_HASH] = &lb_prefix_hash, [LB_CONSISTENT_HASH] = &lb_consistent_hash,
    [LB_LEAST_LOAD] = &lb_least_load,   [LB_POWER_OF_TWO] = &lb_power_of_two,
    [LB_ROUND_ROBIN] = &lb_round_robin, [LB_RANDOM] = &lb_random,
};

const struct lb_ops *lb_ops_of(enum lb_policy policy) { return table[policy]; }

struct lb_choice lb_pick(const struct lb_ops *ops, const struct lb_pool *p,
                         const struct lb_request *q, double *score)
{
    ops->score(p, q, score);
    if (p->count == 1)
        return (struct lb_choice){0, LB_ONLY};
    return ops->pick(p, q, score);
}

void lb_score_load(const struct lb_pool *p, const struct lb_request *q, double *score)
{
    (void)q;
    for (int i = 0; i < p->count; i++)
        score[i] = lb_load(p, i);
}

int lb_least(const struct lb_pool *p, const double *score)
{
    int best = 0, equal = 1;
    for (int i = 1; i < p->count; i++) {
        if (score[i] < score[best]) {
            best = i;
            equal = 1;
        } else if (score[i] == score[best] && rng_below(p->rng, (uint32_t)++equal) == 0) {
            best = i;
        }
    }
    return best;
}

int lb_prefix_key(const struct lb_request *q, int blocks, uint64_t *key)
{
    if (q->prefix_count == 0)
        return -1;
    *key = q->prefix[q->prefix_count < blocks ? q->prefix_count - 1 : blocks - 1];
    return 0;
}

/* A request more there stays within the bound: (load + 1)/w against max(2, factor × (total + 1)/n)
 * per unit of weight. */
static int within(const struct lb_pool *p, int place, double load, double mean)
{
    double w = p->view->weight[p->slots[place]], limit = p->load_factor * mean;
    return load * (w > 0 ? w : 1) + 1 <=
           (limit * (w > 0 ? w : 1) > 2 ? limit * (w > 0 ? w : 1) : 2);
}

struct lb_choice lb_bounded(const struct lb_pool *p, uint64_t key, const double *load,
                            enum lb_reason reason)
{
    int16_t place[FLEET_SLOTS];
    double total = 1, weights = 0;
    int left = p->count;
    memset(place, -1, sizeof place);
    for (int i = 0; i < p->count; i++) {
        double w = p->view->weight[p->slots[i]];
        place[p->slots[i]] = (int16_t)i;
        weights += w > 0 ? w : 1;
        total += load[i] * (w > 0 ? w : 1);
    }
    for (uint32_t i = 0, at = p->ring->count ? chash_find(p->ring, key) : 0;
         i < p->ring->count && left > 0; i++) {
        uint32_t slot = p->ring->points[at].slot;
        if (place[slot] >= 0) {
            if (within(p, place[slot], load[place[slot]], total / weights))
                return (struct lb_choice){place[slot], reason};
            place[slot] = -1; /* seen: the walk goes over distinct replicas */
            left--;
        }
        at = at + 1 == p->ring->count ? 0 : at + 1;
    }
    return (struct lb_choice){lb_least(p, load), LB_LAST_RESORT};
}
