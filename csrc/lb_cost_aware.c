/* cost_aware: the least predicted cost (cost.h), equal ones by chance. */
#include <math.h>

#include "lb.h"
#include "rendezvous.h"

#define ROUND_PER_S 1e4 /* costs are compared in 0.1 ms: enough to keep idle replicas equal */
#define WINDOW                                                                                     \
    1.05 /* several gateways: near-equal replicas, among which they agree without talking */

static void score(const struct lb_pool *p, const struct lb_request *q, double *out)
{
    double hit[FLEET_SLOTS];
    if (p->match)
        for (int i = 0; i < p->count; i++)
            hit[i] = lb_hit_tokens(p, q, i);
    cost_all(p->view, p->rates, p->slots, p->count, p->speed, &q->cost, p->match ? hit : NULL, out);
}

/* The least cost, and all that round to the same 0.1 ms, by chance. */
static int least_cost(const struct lb_pool *p, const double *cost)
{
    int best = 0, equal = 0;
    double least = cost[0];
    for (int i = 1; i < p->count; i++)
        least = cost[i] < least ? cost[i] : least;
    double above = (floor(least * ROUND_PER_S + 0.5) + 0.5) / ROUND_PER_S;
    if (!(least < above)) /* beyond the resolution of a double nothing is near */
        above = nextafter(least, INFINITY);
    for (int i = 0; i < p->count; i++)
        if (cost[i] < above && (equal++ == 0 || rng_below(p->rng, (uint32_t)equal) == 0))
            best = i;
    return best;
}

static int agreed(const struct lb_pool *p, const double *cost, double least, uint64_t key)
{
    int best = -1;
    uint64_t highest = 0;
    for (int i = 0; i < p->count; i++) {
        uint64_t weight = rendezvous_weight(key, p->ids[p->slots[i]]);
        if (cost[i] <= WINDOW * least && (best < 0 || weight > highest)) {
            highest = weight;
            best = i;
        }
    }
    return best;
}

static struct lb_choice pick(const struct lb_pool *p, const struct lb_request *q,
                             const double *cost)
{
    int best = least_cost(p, cost);
    uint64_t key = q->session;
    if (p->gateways > 1 && (lb_prefix_key(q, 1, &key) == 0 || q->has_session))
        best = agreed(p, cost, cost[best], key);
    return (struct lb_choice){best, LB_COST};
}

const struct lb_ops lb_cost_aware = {"cost_aware", LB_NEEDS_PREFIX, score, pick};
