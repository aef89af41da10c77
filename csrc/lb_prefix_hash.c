/* prefix_hash: a ring over the prompt's first blocks, with bounded loads; prompts shorter than a
 * block go by session, else by load. */
#include "lb.h"

enum { KEY_BLOCKS = 4 }; /* one block is often a system prompt that everybody shares */

static struct lb_choice pick(const struct lb_pool *p, const struct lb_request *q,
                             const double *load)
{
    uint64_t key;
    if (lb_prefix_key(q, KEY_BLOCKS, &key) == 0)
        return lb_bounded(p, key, load, LB_PREFIX);
    if (q->has_session)
        return lb_bounded(p, q->session, load, LB_SESSION);
    return (struct lb_choice){lb_least(p, load), LB_LEAST};
}

const struct lb_ops lb_prefix_hash = {"prefix_hash", LB_NEEDS_RING, lb_score_load, pick};
