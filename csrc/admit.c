#include "admit.h"

#include <string.h>

const char *const admit_names[ADMITS] = {
    [ADMIT_YES] = "",
    [ADMIT_TRIED] = "failed this request already",
    [ADMIT_NOT_ELIGIBLE] = "takes no new requests",
    [ADMIT_TRICKLE] = "half-open: one request at a time",
    [ADMIT_OVERLOADED] = "above overload_ratio",
    [ADMIT_QUEUE] = "above max_queue",
    [ADMIT_SLOW_START] = "slow start",
    [ADMIT_NO_WEIGHT] = "weight 0",
};

/* What does not hang on one replica. */
struct fleet_sum {
    int eligible;
    int64_t requests;
    int any_weight;
};

static struct fleet_sum sum_eligible(const struct view *v, const uint16_t *slots, int n)
{
    struct fleet_sum s = {0, 0, 0};
    for (int i = 0; i < n; i++)
        if (v->flags[slots[i]] & ROW_ELIGIBLE) {
            s.eligible++;
            s.requests += v->requests[slots[i]];
            s.any_weight |= v->weight[slots[i]] > 0;
        }
    return s;
}

static int is_tried(const struct admit_rules *rules, uint16_t slot)
{
    for (int i = 0; i < rules->tried_count; i++)
        if (rules->tried[i] == slot)
            return 1;
    return 0;
}

/* In flight with this one at most max(1, ramp × mean of the others). */
static int above_ramp(const struct view *v, uint16_t slot, const struct fleet_sum *s)
{
    double others =
        s->eligible > 1 ? (double)(s->requests - v->requests[slot]) / (s->eligible - 1) : 0;
    double most = v->ramp[slot] * others;
    return v->ramp[slot] < 1 && v->requests[slot] + 1 > (most > 1 ? most : 1);
}

static enum admit judge(const struct view *v, uint16_t slot, const struct admit_rules *rules,
                        const struct fleet_sum *s)
{
    if (!(v->flags[slot] & ROW_ELIGIBLE))
        return ADMIT_NOT_ELIGIBLE;
    if (rules->tried_count && is_tried(rules, slot))
        return ADMIT_TRIED;
    if (v->flags[slot] & ROW_TRICKLE && v->requests[slot] > 0)
        return ADMIT_TRICKLE;
    if (v->requests[slot] > v->limit[slot])
        return ADMIT_OVERLOADED;
    if (v->max_queue[slot] > 0 && v->waiting[slot] > v->max_queue[slot])
        return ADMIT_QUEUE;
    if (s->any_weight && v->weight[slot] <= 0)
        return ADMIT_NO_WEIGHT;
    return above_ramp(v, slot, s) ? ADMIT_SLOW_START : ADMIT_YES;
}

/* No special replica and none tried: load alone decides, without a branch. */
static void admit_plain(const struct view *v, const uint16_t *slots, int n, struct admitted *out)
{
    int count = 0, outside = 0;
    for (int i = 0; i < n; i++) {
        uint16_t slot = slots[i];
        int is_out = v->kind[slot] != VIEW_PLAIN;
        out->index[count] = (uint16_t)i;
        out->slot[count] = slot;
        outside += is_out;
        count += !is_out & (v->requests[slot] <= v->limit[slot]);
    }
    out->count = out->by[ADMIT_YES] = count;
    out->by[ADMIT_NOT_ELIGIBLE] = outside;
    out->by[ADMIT_OVERLOADED] = n - outside - count;
}

static void admit_each(const struct view *v, const uint16_t *slots, int n,
                       const struct admit_rules *rules, struct admitted *out, uint8_t *why)
{
    struct fleet_sum s = sum_eligible(v, slots, n);
    uint16_t second[FLEET_SLOTS]; /* those that are taken only if nobody else is left */
    int seconds = 0;
    for (int i = 0; i < n; i++) {
        enum admit a = judge(v, slots[i], rules, &s);
        out->by[a]++;
        if (why)
            why[i] = (uint8_t)a;
        if (a == ADMIT_YES)
            out->index[out->count++] = (uint16_t)i;
        else if (a == ADMIT_SLOW_START)
            second[seconds++] = (uint16_t)i;
    }
    if (out->count == 0) {
        memcpy(out->index, second, (size_t)seconds * sizeof *second);
        out->count = seconds;
    }
    for (int i = 0; i < out->count; i++)
        out->slot[i] = slots[out->index[i]];
}

void admit_all(const struct view *v, const uint16_t *slots, int n, const struct admit_rules *rules,
               struct admitted *out, uint8_t *why)
{
    memset(out->by, 0, sizeof out->by);
    out->count = 0;
    if (v->specials == 0 && rules->tried_count == 0 && !why)
        admit_plain(v, slots, n, out);
    else
        admit_each(v, slots, n, rules, out, why);
}
