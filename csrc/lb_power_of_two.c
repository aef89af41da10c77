/* power_of_two: the less loaded of two by chance (Mitzenmacher 2001). */
#include "lb.h"

static struct lb_choice pick(const struct lb_pool *p, const struct lb_request *q,
                             const double *load)
{
    uint32_t n = (uint32_t)p->count, a = rng_below(p->rng, n), b = rng_below(p->rng, n - 1);
    (void)q;
    b += b >= a;
    return (struct lb_choice){(int)(load[b] < load[a] ? b : a), LB_CHANCE};
}

const struct lb_ops lb_power_of_two = {"power_of_two", 0, lb_score_load, pick};
