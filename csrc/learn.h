/* What is learned from traffic: the pace of decoding, the rate of prefill, output lengths, the
 * tokens of a prompt, and how slow each replica is beside its peers.
 *
 * Samples go into sums that only their process writes; each sum forgets by its own samples. Whoever
 * reads adds the sums of all processes (and of dead ones: the archive), then the prior, and solves:
 * nobody averages averages. Source of the rules and constants: a study of policies on simulated
 * fleets, docs/routing.md. */
#ifndef HEADRACE_LEARN_H
#define HEADRACE_LEARN_H

#include "fleet.h"

/* What is known of a learning group (a base model), ready for use. */
struct rates {
    double base_s;                             /* b0: a decoding step without sequences */
    double seq_s;                              /* b1: what each sequence adds to it */
    double token_s;                            /* 1/µ: prefill of one uncached token */
    double first_s;                            /* t0 of the same fit; not part of any cost */
    double output_tokens;                      /* Ō, of one sequence */
    double output_by_limit[FLEET_OUT_BUCKETS]; /* Ō by max_tokens bucket */
    double uncached_tokens;                    /* ū, of one request */
    double token_weights[FLEET_FEATURES];      /* prompt tokens per unit of each feature */
    /* sums behind the last solution */
    uint64_t pace_samples, prefill_samples;
    double token_w;
};

void learn_init(struct rates *r);

/* Brings r up to date with the sums of all processes. */
void learn_refresh(struct rates *r, struct fleet *f, uint32_t group);

/* Seconds of one decoding step with n sequences. */
static inline double learn_pace_s(const struct rates *r, double n)
{
    return r->base_s + r->seq_s * n;
}

/* Bucket of a max_tokens: 0 for none (0 or less), then by powers of two. */
int learn_bucket(int64_t max_tokens);

/* Expected output of one sequence under a max_tokens (0: none). */
double learn_output(const struct rates *r, int64_t max_tokens);

/* Prompt tokens of these features. */
double learn_prompt_tokens(const struct rates *r, const double *features);

/* ---- samples; g is this process's own cell of the group */

/* A token gap on a replica of slowness s while n sequences decoded there: y = gap / s. */
void learn_gap(struct group_cell *g, double n, double y);

/* A time to first token for x pending and uncached tokens: y = TTFT / s. */
void learn_prefill(struct group_cell *g, double x, double y);

void learn_finish(struct group_cell *g, int64_t max_tokens, double output_tokens);

void learn_uncached(struct group_cell *g, double tokens);

/* A prompt of these features had so many tokens. */
void learn_prompt(struct group_cell *g, const double *features, double tokens);

/* ---- slowness of a replica; c is this process's own cell of the slot */

/* A gap of gap_s where pace_s was expected; `weight` 1, or less for a doubtful sample. What had
 * faded before it counts as `typical`, the mean of the group. */
void learn_slowness(struct cell *c, uint32_t generation, double gap_s, double pace_s, double weight,
                    double typical, uint64_t now_ns);

/* The sum of what processes know of a replica's speed. */
struct learn_speed {
    double w, wx;
    double newest; /* freshness of the newest part, 1 … 0 */
};

/* Adds a process's part; what belongs to another generation of the replica, or is older than 30 s,
 * is nothing. */
void learn_speed_add(struct learn_speed *s, const struct cell *c, uint32_t generation,
                     uint64_t now_ns);

/* Slowness 0.2 … 10; what weight is missing or faded counts as 1. */
double learn_speed_value(const struct learn_speed *s);

/* As it was when the newest part was fresh. */
double learn_speed_last(const struct learn_speed *s);

#endif
