/* cache_aware: the longest resident prefix among the replicas near the least load; no prefix
 * anywhere, or equal ones: the least loaded. */
#include "lb.h"

/* Near: at most half as much again as the least, and eight more; idle fleets follow the prefix
 * alone. */
#define NEAR_FACTOR 1.5
#define NEAR_REQUESTS 8.0

static struct lb_choice pick(const struct lb_pool *p, const struct lb_request *q,
                             const double *load)
{
    int least = lb_least(p, load), best = least;
    double near = load[least] * NEAR_FACTOR + NEAR_REQUESTS, longest = lb_hit_tokens(p, q, least);
    for (int i = 0; i < p->count; i++) {
        double hit = lb_hit_tokens(p, q, i);
        if (load[i] <= near && (hit > longest || (hit == longest && load[i] < load[best]))) {
            longest = hit;
            best = i;
        }
    }
    return (struct lb_choice){best, longest > 0 ? LB_PREFIX : LB_LEAST};
}

const struct lb_ops lb_cache_aware = {"cache_aware", LB_NEEDS_PREFIX, lb_score_load, pick};
