from libc.stdint cimport uint8_t, uint64_t

from headrace.core.balancer cimport OVERLOADED, Balancer, RouteRequest
from headrace.core.books cimport Books, served
from headrace.core.fleet cimport FLEET_SLOTS
from headrace.core.lb cimport *

from headrace.core.lease import POLICIES, REASONS

ADMISSIONS = tuple((<bytes>admit_names[i]).decode() for i in range(ADMITS))


def explain(Balancer balancer not None, RouteRequest request not None, uint64_t now_ns):
    """What would be chosen for a request and why, by slot; changes nothing, in this process or in
    the segment.
    """
    cdef Books b = balancer.books
    cdef served *m = b.served_by(request.model)
    cdef lb_request q
    cdef lb_pool pool
    cdef lb_choice choice
    cdef rng chance = balancer.chance
    cdef uint8_t why[FLEET_SLOTS]
    cdef int i
    found = {"policy": POLICIES[balancer.policy], "slot": None, "reason": "no_replica",
             "replicas": []}
    if m == NULL:
        return {**found, "estimate": {"prompt_tokens": request.prompt_tokens,
                                      "output_tokens": 0.0}, "learned": {}}
    b.renew(now_ns)
    balancer.admit(m, request, why)
    balancer.prepare(m, request, &q, &pool)
    scores = {}
    if pool.count:
        pool.rng = &chance
        choice = lb_pick(balancer.ops, &pool, &q, balancer.score)
        scores = {pool.slots[i]: balancer.score[i] for i in range(pool.count)}
        found["slot"] = pool.slots[choice.place]
        found["reason"] = REASONS[choice.reason]
    elif balancer.refusal() == OVERLOADED:
        found["reason"] = "overloaded"
    prefix_lookup(&b.table, request.prefix, request.prefix_count, m.slots, m.count,
                  b.seen.prefix_blocks, balancer.match)
    for i in range(m.count):
        found["replicas"].append({
            "slot": m.slots[i], "eligible": m.slots[i] in scores, "why": ADMISSIONS[why[i]],
            "score": scores.get(m.slots[i]), "terms": terms_of(balancer, m, m.slots[i], &q),
        })
    found["estimate"] = {"prompt_tokens": q.cost.prompt_tokens,
                         "output_tokens": q.cost.output_tokens}
    found["learned"] = b.learned(m.group)
    return found


cdef dict terms_of(Balancer balancer, served *m, int slot, lb_request *q):
    """Every term of the cost of a replica, and what it is made of."""
    cdef Books b = balancer.books
    cdef view *v = b.seen
    cdef cost_terms t
    cdef double hit = cost_hit_tokens(q.cost.prompt_tokens, q.block_tokens,
                                      balancer.match.blocks[slot], balancer.match.age[slot])
    cost_explain(v, &b.groups[m.group], slot, b.typical[m.group], &q.cost, hit, &t)
    return {
        "step_s": t.step, "pending_s": t.pending, "prefill_s": t.prefill,
        "balance_s": t.balance, "kv_s": t.kv, "uncached_s": t.uncached, "cost_s": t.total,
        "hit_tokens": t.hit_tokens, "uncached_tokens": t.uncached_tokens,
        "slowness": t.slowness, "weight": v.weight[slot],
        "requests": v.requests[slot], "sequences": v.seqs[slot], "decoding": v.decoding[slot],
        "foreign_sequences": v.foreign_seqs[slot], "foreign_waiting": v.foreign_waiting[slot],
        "pending_tokens": v.pending_tokens[slot], "kv_tokens": v.kv_tokens[slot],
        "kv_capacity_tokens": v.kv_capacity[slot] or None,
    }
