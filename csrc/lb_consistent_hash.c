/* consistent_hash: a ring over the session key, with bounded loads; requests without a session go
 * by load. */
#include "lb.h"

static struct lb_choice pick(const struct lb_pool *p, const struct lb_request *q,
                             const double *load)
{
    if (q->has_session)
        return lb_bounded(p, q->session, load, LB_SESSION);
    return (struct lb_choice){lb_least(p, load), LB_LEAST};
}

const struct lb_ops lb_consistent_hash = {"consistent_hash", LB_NEEDS_RING, lb_score_load, pick};
