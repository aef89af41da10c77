#include "claim.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "rng.h"

enum { CLAIMS = 200, SLOTS = 5, STEPS = 20000 };

static struct process_block *block;
static struct view *seen;

static struct claim random_claim(struct rng *r)
{
    return (struct claim){.slot = (uint16_t)rng_below(r, SLOTS),
                          .pair = (uint16_t)rng_below(r, 9),
                          .sequences = 1 + (int32_t)rng_below(r, 4),
                          .generation = 1 + rng_below(r, 3),
                          .uncached_tokens = rng_unit(r) * 1e4,
                          .prefill_s = rng_unit(r) * 10,
                          .kv_tokens = rng_unit(r) * 1e4,
                          .inflight_tokens = rng_unit(r) * 1e4};
}

static void expect_sums(const struct claim *claims)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        struct cell want = {0}, *got = &block->cells[slot];
        for (int i = 0; i < CLAIMS; i++) {
            const struct claim *c = &claims[i];
            if (!c->open || c->slot != slot)
                continue;
            want.requests++;
            want.seqs += c->sequences;
            want.decoding += c->decoding ? c->sequences : 0;
            want.pending_tokens += c->decoding ? 0 : c->uncached_tokens;
            want.pending_s += c->decoding ? 0 : c->prefill_s;
            want.kv_tokens += c->kv_tokens;
        }
        CHECK(got->requests == want.requests && got->seqs == want.seqs);
        CHECK(got->decoding == want.decoding && got->pending_tokens == want.pending_tokens);
        CHECK(got->pending_s == want.pending_s && got->kv_tokens == want.kv_tokens);
        CHECK(seen->requests[slot] == want.requests && seen->kv_tokens[slot] == want.kv_tokens);
        CHECK(seen->decoding[slot] == want.decoding && seen->pending_s[slot] == want.pending_s);
    }
}

/* Exactly, not nearly: amounts are multiples of powers of two. */
static void sums_are_exact_under_any_history(void)
{
    struct claim claims[CLAIMS] = {0};
    struct rng r = {7};
    for (int step = 0; step < STEPS; step++) {
        struct claim *c = &claims[rng_below(&r, CLAIMS)];
        switch (rng_below(&r, 4)) {
        case 0:
            if (!c->open) {
                *c = random_claim(&r);
                claim_open(c, block, seen, (uint64_t)step);
            }
            break;
        case 1: claim_decode(c, block, seen, (uint64_t)step); break;
        case 2: claim_grow(c, block, seen, rng_unit(&r) * 50); break;
        default: claim_close(c, block, seen, (uint64_t)step);
        }
        if (step % 100 == 0)
            expect_sums(claims);
    }
    for (int i = 0; i < CLAIMS; i++)
        claim_close(&claims[i], block, seen, STEPS);
    expect_sums(claims);
    for (int i = 0; i < 9; i++)
        CHECK(block->pairs[i].requests == 0 && block->pairs[i].inflight_tokens == 0);
}

static void a_claim_ends_once(void)
{
    struct claim c = {.slot = 1, .sequences = 2, .kv_tokens = 10};
    claim_open(&c, block, seen, 5);
    CHECK(block->cells[1].requests == 1 && block->cells[1].busy_since_ns == 5);
    CHECK(claim_close(&c, block, seen, 6) == 0 && claim_close(&c, block, seen, 7) == -1);
    claim_decode(&c, block, seen, 8);
    claim_grow(&c, block, seen, 100);
    CHECK(block->cells[1].requests == 0 && block->cells[1].kv_tokens == 0);
    CHECK(block->cells[1].decoding == 0);
}

static void bad_amounts_count_as_nothing(void)
{
    const double bad[] = {NAN, INFINITY, -INFINITY, -1, 1e300};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct claim c = {.slot = 2,
                          .sequences = 1,
                          .uncached_tokens = bad[i],
                          .prefill_s = bad[i],
                          .kv_tokens = bad[i],
                          .inflight_tokens = bad[i]};
        claim_open(&c, block, seen, 1);
        claim_grow(&c, block, seen, bad[i]);
        CHECK(block->cells[2].kv_tokens == 0 && block->cells[2].pending_s == 0);
        claim_close(&c, block, seen, 2);
    }
}

int main(void)
{
    block = calloc(1, sizeof *block);
    seen = calloc(1, sizeof *seen);
    view_init(seen, 0);
    sums_are_exact_under_any_history();
    memset(block, 0, sizeof *block);
    view_init(seen, 0);
    a_claim_ends_once();
    bad_amounts_count_as_nothing();
    free(block);
    free(seen);
    return 0;
}
