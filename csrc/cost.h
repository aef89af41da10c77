/* The predicted cost of a request on a replica, in seconds: what cost_aware compares.
 * docs/routing.md derives it.
 *
 *   cost = (s / w) · (own + full) + u/µ
 *   own  = 1.5·pace + (Q + u)/µ + 0.2·n·Ō·b1          pace = b0 + b1·n
 *   full = max(0, (kv + u + 0.3·h + Ō/2)/C − 0.9) · Ō · pace
 *
 * s slowness, w weight (relative speed), u uncached and h cached prompt tokens, Q pending prefill,
 * n sequences in flight, Ō expected output tokens, µ prefill rate, C KV capacity. A shared prefix
 * occupies KV once, so hits count 0.3; uncached tokens weigh more than their own time, because they
 * also evict; that part is no time on the replica, so s does not scale it. */
#ifndef HEADRACE_COST_H
#define HEADRACE_COST_H

#include "learn.h"
#include "prefix.h"
#include "view.h"

#define COST_STEPS 1.5
#define COST_BALANCE 0.2
#define COST_HIT_KV 0.3
#define COST_KV_FROM 0.9
#define COST_UNCACHED 1.0

/* What the request adds; the same for all replicas but for the hit. */
struct cost_request {
    double prompt_tokens;
    double output_tokens; /* of one sequence, capped by max_tokens; 0 for embeddings */
    int32_t sequences;
};

/* The parts of one cost, each in seconds and already scaled, so that they add up to it. */
struct cost_terms {
    double step;    /* 1.5·pace */
    double pending; /* Q/µ */
    double prefill; /* u/µ */
    double balance;
    double kv;
    double uncached; /* u/µ once more, without s / w */
    double total;
    double hit_tokens, uncached_tokens, slowness;
};

/* Tokens of one prompt block: the prompt's over its blocks (the last one, which has no key, is half
 * full in the mean). A prompt whose blocks were not all looked at, or say nothing about its size
 * (images), has what a block of text usually has. */
static inline double cost_block_tokens(double prompt_tokens, int blocks)
{
    double tokens = prompt_tokens / (blocks + 0.5);
    return blocks >= PREFIX_MAX_BLOCKS || tokens > 4 * PREFIX_BLOCK_TOKENS ||
                   tokens < PREFIX_BLOCK_TOKENS / 4.0
               ? PREFIX_BLOCK_TOKENS
               : tokens;
}

/* h: resident tokens, fading with age; blocks is 0 where nothing matched. */
static inline double cost_hit_tokens(double prompt_tokens, double block_tokens, uint16_t blocks,
                                     float age)
{
    double matched = blocks * block_tokens;
    double share = matched < prompt_tokens ? matched : prompt_tokens;
    return share * (1 - (double)age * (double)age);
}

/* Slowness relative to the group; `typical` is the geometric mean of what is known. It fades to 1:
 * a replica without requests for a while is as good as its peers again, whatever they run at. */
static inline double cost_slowness(const struct view *v, uint32_t slot, double typical)
{
    double fresh = v->slow_fresh[slot];
    double s = fresh * v->slow[slot] / typical + (1 - fresh);
    return s < 0.2 ? 0.2 : s > 10 ? 10 : s;
}

/* Geometric mean of the slownesses of some slots, each as far as it is fresh; 1 if none is. */
double cost_typical(const struct view *v, const uint16_t *slots, int n);

/* s / w of each of some slots, by slot: what all time on a replica is multiplied with. Changes with
 * each renewal. */
void cost_speeds(const struct view *v, const uint16_t *slots, int n, double typical, double *speed);

/* Seconds to the first token without surcharge, balance and KV terms: s·(1.5·pace + (Q + u)/µ). */
double cost_first_token_s(const struct view *v, const struct rates *r, uint32_t slot, double speed,
                          double uncached_tokens);

/* cost[i] of slots[i]; hit_tokens[i] likewise, or NULL where nothing is resident. */
void cost_all(const struct view *v, const struct rates *r, const uint16_t *slots, int n,
              const double *speed, const struct cost_request *q, const double *hit_tokens,
              double *cost);

void cost_explain(const struct view *v, const struct rates *r, uint32_t slot, double typical,
                  const struct cost_request *q, double hit_tokens, struct cost_terms *out);

#endif
