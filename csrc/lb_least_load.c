/* least_load: fewest sequences in flight by weight, with a rule against herds: by chance among
 * those of the best third whose load is less than one request above the least, so that gateways
 * with the same old figures do not all choose the same replica. */
#include "lb.h"

static struct lb_choice pick(const struct lb_pool *p, const struct lb_request *q,
                             const double *load)
{
    int third = p->count / 3 > 2 ? p->count / 3 : 2, near = 0, places[FLEET_SLOTS];
    double least = load[lb_least(p, load)];
    (void)q;
    for (int i = 0; i < p->count; i++)
        if (load[i] < least + 1) {
            int at = near < third ? near++ : third; /* keep the best third, worst last */
            for (; at > 0 && load[i] < load[places[at - 1]]; at--)
                if (at < third)
                    places[at] = places[at - 1];
            if (at < third)
                places[at] = i;
        }
    /* More than a third share the least: then all of these are the best, and none of the others. */
    if (near == third && load[places[third - 1]] == least)
        return (struct lb_choice){lb_least(p, load), LB_LEAST};
    return (struct lb_choice){places[rng_below(p->rng, (uint32_t)near)], LB_LEAST};
}

const struct lb_ops lb_least_load = {"least_load", 0, lb_score_load, pick};
