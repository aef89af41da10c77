#include "cost.h"

#include <math.h>

double cost_typical(const struct view *v, const uint16_t *slots, int n)
{
    double logs = 0;
    int known = 0;
    for (int i = 0; i < n; i++)
        if (v->slow_known[slots[i]]) {
            logs += log(v->slow[slots[i]]);
            known++;
        }
    return known ? exp(logs / known) : 1;
}

static inline double speed(const struct view *v, uint32_t slot, double typical)
{
    double w = v->weight[slot];
    return cost_slowness(v, slot, typical) / (w > 0 ? w : 1);
}

static inline double pending_s(const struct view *v, const struct rates *r, uint32_t slot)
{
    return v->pending_s[slot] + v->foreign_waiting[slot] * r->uncached_tokens * r->token_s;
}

static inline void parts(const struct view *v, const struct rates *r, uint32_t slot, double typical,
                         const struct cost_request *q, double hit, struct cost_terms *t)
{
    double n = view_load(v, slot), s = speed(v, slot, typical), pace = learn_pace_s(r, n),
           capacity = v->kv_capacity[slot];
    double u = q->prompt_tokens - hit > 1 ? q->prompt_tokens - hit : 1;
    double work = u * r->token_s;
    t->step = s * COST_STEPS * pace;
    t->pending = s * pending_s(v, r, slot);
    t->prefill = s * work;
    t->balance = s * COST_BALANCE * n * r->output_tokens * r->seq_s;
    t->uncached = COST_UNCACHED * work;
    t->kv = 0;
    t->hit_tokens = hit;
    t->uncached_tokens = u;
    if (capacity > 0) {
        double output = q->output_tokens * q->sequences;
        double over =
            (v->kv_tokens[slot] + u + COST_HIT_KV * hit + output / 2) / capacity - COST_KV_FROM;
        if (over > 0)
            t->kv = s * over * q->output_tokens * pace;
    }
}

static inline double sum(const struct cost_terms *t)
{
    return t->step + t->pending + t->prefill + t->balance + t->kv + t->uncached;
}

double cost_first_token_s(const struct view *v, const struct rates *r, uint32_t slot,
                          double typical, double uncached_tokens)
{
    double pace = learn_pace_s(r, view_load(v, slot));
    return speed(v, slot, typical) *
           (COST_STEPS * pace + pending_s(v, r, slot) + uncached_tokens * r->token_s);
}

double cost_of(const struct view *v, const struct rates *r, uint32_t slot, double typical,
               const struct cost_request *q, double hit_tokens)
{
    struct cost_terms t;
    parts(v, r, slot, typical, q, hit_tokens, &t);
    return sum(&t);
}

void cost_explain(const struct view *v, const struct rates *r, uint32_t slot, double typical,
                  const struct cost_request *q, double hit_tokens, struct cost_terms *out)
{
    parts(v, r, slot, typical, q, hit_tokens, out);
    out->slowness = cost_slowness(v, slot, typical);
    out->total = sum(out);
}
