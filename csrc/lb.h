/* The policies: filter → score → pick. The filter is admit.h and the same for all; each policy is
 * one file with its ops table last.
 *
 * A policy sees the candidates, what is known of them and what is known of the request; it reads,
 * and moves nothing but the pool's own turns and chance. So a caller that copies these two can ask
 * what would be chosen. */
#ifndef HEADRACE_LB_H
#define HEADRACE_LB_H

#include "chash.h"
#include "cost.h"
#include "learn.h"
#include "prefix.h"
#include "rng.h"
#include "view.h"

enum lb_policy {
    LB_COST_AWARE,
    LB_CACHE_AWARE,
    LB_PREFIX_HASH,
    LB_CONSISTENT_HASH,
    LB_LEAST_LOAD,
    LB_POWER_OF_TWO,
    LB_ROUND_ROBIN,
    LB_RANDOM,
    LB_POLICIES,
};

/* Why a replica was chosen, as metrics name it. */
enum lb_reason {
    LB_ONLY,
    LB_TURN,
    LB_LEAST,
    LB_CHANCE,
    LB_COST,
    LB_PREFIX,
    LB_SESSION,
    LB_RING,
    LB_LAST_RESORT,
    LB_RETRY,
    LB_REASONS,
};

enum { LB_NEEDS_PREFIX = 1, LB_NEEDS_RING = 2, LB_NEEDS_TURNS = 4 };

/* What a policy may know of a request. */
struct lb_request {
    struct cost_request cost;
    const uint64_t *prefix; /* block keys, chained */
    int prefix_count;
    double block_tokens; /* of one of these blocks */
    int has_session;
    uint64_t session;
};

/* The replicas to choose from, by place 0 … count - 1, and what is known of them. */
struct lb_pool {
    const struct view *view;
    const struct rates *rates;
    const struct prefix_match *match; /* NULL for policies that did not ask for it */
    const struct chash *ring;         /* NULL likewise; may name slots that are no candidates */
    const uint64_t *ids;              /* hash of the replica's id, by slot */
    const uint16_t *slots;            /* by place */
    double *turns;                    /* by place; round_robin's */
    int count;
    const double *speed; /* s / w by slot, see cost.h */
    double load_factor;
    int gateways;
    struct rng *rng;
};

struct lb_choice {
    int place;
    enum lb_reason reason;
};

/* score: by place, lower is better, in the policy's unit (seconds or requests). */
struct lb_ops {
    const char *name;
    int needs;
    void (*score)(const struct lb_pool *p, const struct lb_request *q, double *score);
    struct lb_choice (*pick)(const struct lb_pool *p, const struct lb_request *q,
                             const double *score);
};

extern const struct lb_ops lb_cost_aware, lb_cache_aware, lb_prefix_hash, lb_consistent_hash,
    lb_least_load, lb_power_of_two, lb_round_robin, lb_random;

const struct lb_ops *lb_ops_of(enum lb_policy policy);
extern const char *const lb_reason_names[LB_REASONS];

/* Scores into score[count] and picks; count > 0. */
struct lb_choice lb_pick(const struct lb_ops *ops, const struct lb_pool *p,
                         const struct lb_request *q, double *score);

/* ---- for the policies */

/* Sequences in flight over the weight: the load that policies without a cost compare. */
static inline double lb_load(const struct lb_pool *p, int place)
{
    double w = p->view->weight[p->slots[place]];
    return view_load(p->view, p->slots[place]) / (w > 0 ? w : 1);
}

void lb_score_load(const struct lb_pool *p, const struct lb_request *q, double *score);

/* Tokens of the request's prompt that are resident there. */
static inline double lb_hit_tokens(const struct lb_pool *p, const struct lb_request *q, int place)
{
    uint16_t slot = p->slots[place];
    return p->match ? cost_hit_tokens(q->cost.prompt_tokens, q->block_tokens,
                                      p->match->blocks[slot], p->match->age[slot])
                    : 0;
}

/* Place with the least score, equal ones by chance. */
int lb_least(const struct lb_pool *p, const double *score);

/* Key of the first blocks of the prompt, so that prompts with one beginning agree; 0 and *key, or
 * -1 for a prompt shorter than a block. */
int lb_prefix_key(const struct lb_request *q, int blocks, uint64_t *key);

/* The first replica along the ring from the key that stays within max(2, load_factor × mean) with
 * this request, loads and means by weight; when all are above, the least loaded (LB_LAST_RESORT).
 */
struct lb_choice lb_bounded(const struct lb_pool *p, uint64_t key, const double *load,
                            enum lb_reason reason);

#endif
