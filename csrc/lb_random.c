/* random: by chance, in proportion to the weights. */
#include "lb.h"

static double weight_of(const struct lb_pool *p, int place)
{
    double w = p->view->weight[p->slots[place]];
    return w > 0 ? w : 1;
}

static struct lb_choice pick(const struct lb_pool *p, const struct lb_request *q,
                             const double *load)
{
    double total = 0;
    (void)q;
    (void)load;
    for (int i = 0; i < p->count; i++)
        total += weight_of(p, i);
    double at = rng_unit(p->rng) * total;
    int place = 0;
    for (; place < p->count - 1; place++) {
        at -= weight_of(p, place);
        if (at < 0)
            break;
    }
    return (struct lb_choice){place, LB_CHANCE};
}

const struct lb_ops lb_random = {"random", 0, lb_score_load, pick};
