/* round_robin: turns by weight, as evenly interleaved as can be: every candidate gains its weight
 * each time, the one that has most is taken and pays what all gained (nginx calls it smooth
 * weighted round robin). Turns belong to a model, so models do not disturb each other. */
#include "lb.h"

static double weight_of(const struct lb_pool *p, int place)
{
    double w = p->view->weight[p->slots[place]];
    return w > 0 ? w : 1;
}

/* Who has most has the least score. */
static void score(const struct lb_pool *p, const struct lb_request *q, double *out)
{
    (void)q;
    for (int i = 0; i < p->count; i++)
        out[i] = -(p->turns[i] + weight_of(p, i));
}

static struct lb_choice pick(const struct lb_pool *p, const struct lb_request *q,
                             const double *turn)
{
    int best = 0;
    double total = 0;
    (void)q;
    for (int i = 0; i < p->count; i++) {
        p->turns[i] += weight_of(p, i);
        total += weight_of(p, i);
        if (turn[i] < turn[best])
            best = i;
    }
    p->turns[best] -= total;
    return (struct lb_choice){best, LB_TURN};
}

const struct lb_ops lb_round_robin = {"round_robin", LB_NEEDS_TURNS, score, pick};
