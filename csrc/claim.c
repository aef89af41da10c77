#include "claim.h"

#include <math.h>

#include "atom.h"

#define TOKEN_STEP 0x1p-6
#define SECOND_STEP 0x1p-20

/* What is no number, or beyond what stays exact, counts as nothing: a bad estimate may mislead,
 * never poison. */
static double amount(double x, double step)
{
    return x > 0 && x < 0x1p30 ? nearbyint(x / step) * step : 0;
}

static void hold(struct claim *c, struct process_block *b, struct view *v, int sign)
{
    struct cell *cell = &b->cells[c->slot];
    struct pair_cell *pair = &b->pairs[c->pair];
    atom_add_i32(&cell->requests, sign);
    atom_add_i32(&cell->seqs, sign * c->sequences);
    atom_add_f64(&cell->kv_tokens, sign * c->kv_tokens);
    atom_add_f64(&cell->inflight_tokens, sign * c->inflight_tokens);
    atom_add_i32(&pair->requests, sign);
    atom_add_f64(&pair->inflight_tokens, sign * c->inflight_tokens);
    v->requests[c->slot] += sign;
    v->seqs[c->slot] += sign * c->sequences;
    v->kv_tokens[c->slot] += sign * c->kv_tokens;
}

static void pend(struct claim *c, struct process_block *b, struct view *v, int sign)
{
    struct cell *cell = &b->cells[c->slot];
    atom_add_f64(&cell->pending_tokens, sign * c->uncached_tokens);
    atom_add_f64(&cell->pending_s, sign * c->prefill_s);
    v->pending_tokens[c->slot] += sign * c->uncached_tokens;
    v->pending_s[c->slot] += sign * c->prefill_s;
}

static void decode(struct claim *c, struct process_block *b, struct view *v, int sign)
{
    atom_add_i32(&b->cells[c->slot].decoding, sign * c->sequences);
    v->decoding[c->slot] += sign * c->sequences;
}

void claim_open(struct claim *c, struct process_block *b, struct view *v, uint64_t now_ns)
{
    struct cell *cell = &b->cells[c->slot];
    c->uncached_tokens = amount(c->uncached_tokens, TOKEN_STEP);
    c->prefill_s = amount(c->prefill_s, SECOND_STEP);
    c->kv_tokens = amount(c->kv_tokens, TOKEN_STEP);
    c->inflight_tokens = amount(c->inflight_tokens, TOKEN_STEP);
    c->open = 1;
    c->decoding = 0;
    if (cell->requests == 0) {
        atom_set_u32(&cell->generation, c->generation);
        atom_set_u64(&cell->busy_since_ns, now_ns);
    }
    hold(c, b, v, 1);
    pend(c, b, v, 1);
    atom_add_u64(&cell->sent, 1);
}

void claim_decode(struct claim *c, struct process_block *b, struct view *v, uint64_t now_ns)
{
    if (!c->open || c->decoding)
        return;
    pend(c, b, v, -1);
    decode(c, b, v, 1);
    c->decoding = 1;
    v->disturbed_ns[c->slot] = now_ns;
}

void claim_grow(struct claim *c, struct process_block *b, struct view *v, double tokens)
{
    tokens = amount(tokens, TOKEN_STEP);
    if (!c->open)
        return;
    c->kv_tokens += tokens;
    c->inflight_tokens += tokens;
    atom_add_f64(&b->cells[c->slot].kv_tokens, tokens);
    atom_add_f64(&b->cells[c->slot].inflight_tokens, tokens);
    atom_add_f64(&b->pairs[c->pair].inflight_tokens, tokens);
    v->kv_tokens[c->slot] += tokens;
}

int claim_close(struct claim *c, struct process_block *b, struct view *v, uint64_t now_ns)
{
    if (!c->open)
        return -1;
    if (c->decoding)
        decode(c, b, v, -1);
    else {
        pend(c, b, v, -1);
        v->disturbed_ns[c->slot] = now_ns;
    }
    hold(c, b, v, -1);
    c->open = 0;
    return 0;
}
