#include "cost.h"

#include <math.h>

double cost_typical(const struct view *v, const uint16_t *slots, int n)
{
    double logs = 0, fresh = 0;
    for (int i = 0; i < n; i++)
        if (v->slow_fresh[slots[i]] > 0) {
            logs += v->slow_fresh[slots[i]] * log(v->slow[slots[i]]);
            fresh += v->slow_fresh[slots[i]];
        }
    return fresh > 0 ? exp(logs / fresh) : 1;
}

static double speed_of(const struct view *v, uint32_t slot, double typical)
{
    double w = v->weight[slot];
    return cost_slowness(v, slot, typical) / (w > 0 ? w : 1);
}

void cost_speeds(const struct view *v, const uint16_t *slots, int n, double typical, double *speed)
{
    for (int i = 0; i < n; i++)
        speed[slots[i]] = speed_of(v, slots[i], typical);
}

static inline double pending_s(const struct view *v, const struct rates *r, uint32_t slot)
{
    return v->pending_s[slot] + v->foreign_waiting[slot] * (r->uncached_tokens * r->token_s);
}

static inline double uncached(const struct cost_request *q, double hit)
{
    double u = q->prompt_tokens - hit;
    return u > 1 ? u : 1;
}

/* The share of KV memory above COST_KV_FROM; below 0 where there is room or the capacity is
 * unknown. */
static inline double kv_over(const struct view *v, uint32_t slot, const struct cost_request *q,
                             double u, double hit)
{
    double used = v->kv_tokens[slot] + u + COST_HIT_KV * hit + q->output_tokens * q->sequences / 2;
    return used * v->kv_per_token[slot] - COST_KV_FROM;
}

double cost_first_token_s(const struct view *v, const struct rates *r, uint32_t slot, double speed,
                          double uncached_tokens)
{
    double pace = learn_pace_s(r, view_load(v, slot));
    return speed * (COST_STEPS * pace + pending_s(v, r, slot) + uncached_tokens * r->token_s);
}

void cost_all(const struct view *v, const struct rates *r, const uint16_t *slots, int n,
              const double *speed, const struct cost_request *q, const double *hit_tokens,
              double *cost)
{
    const double balance = COST_BALANCE * r->output_tokens * r->seq_s;
    for (int i = 0; i < n; i++) {
        uint32_t slot = slots[i];
        double hit = hit_tokens ? hit_tokens[i] : 0, u = uncached(q, hit),
               load = view_load(v, slot);
        double work = u * r->token_s, pace = learn_pace_s(r, load),
               over = kv_over(v, slot, q, u, hit);
        double own = COST_STEPS * pace + pending_s(v, r, slot) + work + balance * load;
        double full = (over > 0 ? over : 0) * q->output_tokens * pace;
        cost[i] = speed[slot] * (own + full) + COST_UNCACHED * work;
    }
}

void cost_explain(const struct view *v, const struct rates *r, uint32_t slot, double typical,
                  const struct cost_request *q, double hit_tokens, struct cost_terms *t)
{
    double u = uncached(q, hit_tokens), work = u * r->token_s, s = speed_of(v, slot, typical);
    double load = view_load(v, slot), pace = learn_pace_s(r, load);
    double over = kv_over(v, slot, q, u, hit_tokens);
    t->step = s * COST_STEPS * pace;
    t->pending = s * pending_s(v, r, slot);
    t->prefill = s * work;
    t->balance = s * COST_BALANCE * load * r->output_tokens * r->seq_s;
    t->kv = s * (over > 0 ? over : 0) * q->output_tokens * pace;
    t->uncached = COST_UNCACHED * work;
    t->total = t->step + t->pending + t->prefill + t->balance + t->kv + t->uncached;
    t->hit_tokens = hit_tokens;
    t->uncached_tokens = u;
    t->slowness = cost_slowness(v, slot, typical);
}
