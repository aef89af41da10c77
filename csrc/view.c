#include "view.h"

#include <math.h>
#include <string.h>

#include "atom.h"
#include "learn.h"
#include "prefix.h"

#define MS_NS 1000000ULL

enum { RENEWAL_NS = 400 /* of period for each (slot, process) */ };
#define RATE_PERIOD_NS 500000000ULL
#define RATE_MEMORY_S 5.0

void view_init(struct view *v, int32_t process)
{
    memset(v, 0, sizeof *v);
    v->process = process;
    for (int i = 0; i < FLEET_SLOTS; i++)
        v->prefix_blocks[i] = PREFIX_DEFAULT_CAPACITY;
}

void view_set_ratio(struct view *v, double overload_ratio)
{
    v->overload_ratio = overload_ratio;
    memset(v->generation, 0, sizeof v->generation); /* all rows are read again */
}

void view_use(struct view *v, const uint16_t *slots, uint32_t count)
{
    memcpy(v->slots, slots, count * sizeof *slots);
    v->count = count;
    v->renewed_ns = 0;
}

uint64_t view_period_ns(const struct view *v, const struct fleet *f)
{
    uint64_t scaled = (uint64_t)RENEWAL_NS * v->count * f->processes;
    return scaled > MS_NS ? scaled : MS_NS;
}

static double sane(double x, double otherwise) { return isfinite(x) && x >= 0 ? x : otherwise; }

static enum view_kind kind_of(const struct row *r, double weight)
{
    if (!(r->flags & ROW_ELIGIBLE))
        return VIEW_OUT;
    int queued = r->max_queue > 0 && r->waiting > r->max_queue;
    return r->flags & ROW_TRICKLE || r->ramp < 1 || queued || weight <= 0 ? VIEW_SPECIAL
                                                                          : VIEW_PLAIN;
}

/* Taken while requests <= limit: at overload_ratio × max_concurrency it still is, above not. */
static int32_t limit_of(int32_t max_concurrency, double ratio)
{
    double most = floor(ratio * max_concurrency);
    return most < INT32_MAX ? (int32_t)most : INT32_MAX;
}

static void renew_row(struct view *v, struct fleet *f, uint32_t slot)
{
    struct row *shared = fleet_row(f, slot), r;
    if (__atomic_load_n(&shared->seq, __ATOMIC_ACQUIRE) == v->seq[slot] && v->generation[slot])
        return;
    if (row_read(shared, &r) != 0) {
        v->misses++;
        return;
    }
    double weight = sane(r.weight, 1);
    if (weight != v->weight[slot])
        v->weights_version++;
    v->seq[slot] = r.seq;
    v->generation[slot] = r.generation;
    v->flags[slot] = r.flags;
    v->max_concurrency[slot] = r.max_concurrency > 0 ? r.max_concurrency : INT32_MAX;
    v->max_queue[slot] = r.max_queue;
    v->waiting[slot] = r.waiting;
    v->weight[slot] = weight;
    v->ramp[slot] = fmin(sane(r.ramp, 1), 1);
    v->foreign_seqs[slot] = sane(r.foreign_seqs, 0);
    v->foreign_waiting[slot] = sane(r.foreign_waiting, 0);
    v->kv_capacity[slot] = r.kv_capacity_tokens > 0 ? (double)r.kv_capacity_tokens : 0;
    v->kv_per_token[slot] = v->kv_capacity[slot] > 0 ? 1 / v->kv_capacity[slot] : 0;
    v->prefix_blocks[slot] = prefix_capacity(r.kv_capacity_tokens);
    v->kind[slot] = (uint8_t)kind_of(&r, weight);
    v->limit[slot] = limit_of(v->max_concurrency[slot], v->overload_ratio);
}

static void renew_sums(struct view *v, struct fleet *f, uint32_t slot, uint64_t now_ns)
{
    int32_t requests = 0, seqs = 0, decoding = 0;
    double pending_s = 0, pending_tokens = 0, kv_tokens = 0;
    for (uint32_t p = 0; p < f->processes; p++) {
        const struct cell *c = &fleet_block(f, p)->cells[slot];
        requests += atom_i32(&c->requests);
        seqs += atom_i32(&c->seqs);
        decoding += atom_i32(&c->decoding);
        pending_s += atom_f64(&c->pending_s);
        pending_tokens += atom_f64(&c->pending_tokens);
        kv_tokens += atom_f64(&c->kv_tokens);
    }
    v->requests[slot] = requests;
    v->seqs[slot] = seqs;
    v->decoding[slot] = decoding;
    v->pending_s[slot] = pending_s;
    v->pending_tokens[slot] = pending_tokens;
    v->kv_tokens[slot] = kv_tokens;
    if (seqs > decoding)
        v->disturbed_ns[slot] = now_ns;
}

static void renew_slowness(struct view *v, struct fleet *f, uint32_t slot, uint64_t now_ns)
{
    struct learn_speed s = {0, 0, 0};
    for (uint32_t p = 0; p <= f->processes; p++)
        learn_speed_add(&s, &fleet_block(f, p)->cells[slot], v->generation[slot], now_ns);
    v->slow_fresh[slot] = s.newest;
    v->slow[slot] = learn_speed_last(&s);
}

/* Ends of requests per second and slot, as a mean that forgets over RATE_MEMORY_S. */
static void renew_rates(struct view *v, struct fleet *f, uint64_t now_ns)
{
    double seconds = (double)(now_ns - v->rated_ns) * 1e-9;
    double part = 1 - exp(-seconds / RATE_MEMORY_S);
    for (uint32_t i = 0; i < v->count; i++) {
        uint32_t slot = v->slots[i];
        uint64_t done = 0;
        for (uint32_t p = 0; p < f->processes; p++) {
            const struct cell *c = &fleet_block(f, p)->cells[slot];
            done += atom_u64(&c->succeeded) + atom_u64(&c->cancelled) + atom_u64(&c->neutral);
        }
        if (v->rated_ns && done >= v->done[slot]) /* a process that died took its counters along */
            v->done_per_s[slot] +=
                part * ((double)(done - v->done[slot]) / seconds - v->done_per_s[slot]);
        v->done[slot] = done;
    }
    v->rated_ns = now_ns;
}

void view_renew(struct view *v, struct fleet *f, uint64_t now_ns)
{
    v->specials = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        renew_row(v, f, v->slots[i]);
        v->specials += v->kind[v->slots[i]] == VIEW_SPECIAL;
        renew_sums(v, f, v->slots[i], now_ns);
        renew_slowness(v, f, v->slots[i], now_ns);
    }
    if (now_ns - v->rated_ns >= RATE_PERIOD_NS)
        renew_rates(v, f, now_ns);
    v->renewed_ns = now_ns;
}
