#include "learn.h"

#include <math.h>
#include <string.h>

#include "atom.h"
#include "solve.h"
#include "tokens.h"

#define PACE_KEEP 0.9998
#define PREFILL_KEEP 0.998
#define OUTPUT_SAMPLES 200.0 /* a plain mean up to here, then a moving one */
#define OUTPUT_KEEP (1 - 1 / OUTPUT_SAMPLES)
#define UNCACHED_KEEP 0.99
#define TOKENS_KEEP 0.999

#define START_BASE_S 0.020
#define START_SEQ_S 0.0001
#define START_TOKEN_S 1e-4
#define START_OUTPUT 200.0
#define START_UNCACHED 500.0
#define MIN_BASE_S 1e-3
#define MIN_SEQ_S 1e-6
#define MIN_FIRST_S 1e-3
#define MIN_TOKEN_S 1e-7

enum { PACE_PSEUDO = 20, PACE_STEP = 4, PREFILL_PSEUDO = 10, PREFILL_STEP = 500, REFIT_EVERY = 16 };

#define SLOW_MEMORY_S 5.0
#define SLOW_FRESH_S 1.0
#define SLOW_FADE_S 30.0
#define SLOW_CAP 3.0
#define SLOW_LEAST 0.2
#define SLOW_MOST 10.0

void learn_init(struct rates *r)
{
    memset(r, 0, sizeof *r);
    r->base_s = START_BASE_S;
    r->seq_s = START_SEQ_S;
    r->token_s = START_TOKEN_S;
    r->first_s = START_BASE_S;
    r->output_tokens = START_OUTPUT;
    r->uncached_tokens = START_UNCACHED;
    for (int i = 0; i < FLEET_OUT_BUCKETS; i++)
        r->output_by_limit[i] = START_OUTPUT;
    memcpy(r->token_weights, tokens_prior, sizeof r->token_weights);
}

/* ---- two-parameter least squares: Σ w, w·x, w·y, w·x², w·x·y */

static void line_add(double sums[5], double keep, double x, double y)
{
    const double add[5] = {1, x, y, x * x, x * y};
    for (int i = 0; i < 5; i++)
        atom_set_f64(&sums[i], sums[i] * keep + add[i]);
}

/* 0 and the line, or -1 when the points lie on one x. */
static int line_fit(const double sums[5], double *intercept, double *slope)
{
    double det = sums[0] * sums[3] - sums[1] * sums[1];
    if (!(det > 1e-9 * sums[0] * sums[3]))
        return -1;
    *slope = (sums[0] * sums[4] - sums[1] * sums[2]) / det;
    *intercept = (sums[2] - *slope * sums[1]) / sums[0];
    return isfinite(*slope) && isfinite(*intercept) ? 0 : -1;
}

/* `n` pseudo-samples at x = 0, step, 2·step … on a line, faded by the real samples so far. */
static void line_prior(double sums[5], int n, double step, double intercept, double slope,
                       double weight)
{
    for (int i = 0; i < n; i++) {
        double x = i * step, y = intercept + slope * x;
        const double add[5] = {1, x, y, x * x, x * y};
        for (int k = 0; k < 5; k++)
            sums[k] += weight * add[k];
    }
}

void learn_gap(struct group_cell *g, double n, double y)
{
    line_add(g->pace, PACE_KEEP, n, y);
    atom_add_u64(&g->pace_samples, 1);
}

void learn_prefill(struct group_cell *g, double x, double y)
{
    line_add(g->prefill, PREFILL_KEEP, x, y);
    atom_add_u64(&g->prefill_samples, 1);
}

static void fit_pace(struct rates *r, double sums[5], uint64_t samples)
{
    double intercept, slope, base;
    if (samples - r->pace_samples < REFIT_EVERY && samples >= r->pace_samples)
        return;
    r->pace_samples = samples;
    /* The prior knows the slope, not the base: through the mean of the samples. Far beyond their
     * batch sizes it would otherwise turn the slope of a slower model down to none. */
    base = sums[0] > 0 ? (sums[2] - START_SEQ_S * sums[1]) / sums[0] : START_BASE_S;
    line_prior(sums, PACE_PSEUDO, PACE_STEP, base, START_SEQ_S, pow(PACE_KEEP, (double)samples));
    if (line_fit(sums, &intercept, &slope) == 0)
        r->seq_s = fmax(slope, MIN_SEQ_S);
    base = (sums[2] - r->seq_s * sums[1]) / sums[0];
    if (isfinite(base))
        r->base_s = fmax(base, MIN_BASE_S);
}

static void fit_prefill(struct rates *r, double sums[5], uint64_t samples)
{
    double intercept, slope;
    if (samples == r->prefill_samples)
        return;
    r->prefill_samples = samples;
    line_prior(sums, PREFILL_PSEUDO, PREFILL_STEP, START_BASE_S, START_TOKEN_S,
               pow(PREFILL_KEEP, (double)samples));
    if (line_fit(sums, &intercept, &slope) != 0 || slope <= 0)
        return;
    r->token_s = fmax(slope, MIN_TOKEN_S);
    r->first_s = fmax(intercept, MIN_FIRST_S);
}

/* ---- means */

static void mean_add(double *w, double *wx, double keep, double x)
{
    atom_set_f64(w, *w * keep + 1);
    atom_set_f64(wx, *wx * keep + x);
}

int learn_bucket(int64_t max_tokens)
{
    int bucket = 1;
    if (max_tokens <= 0)
        return 0;
    for (; max_tokens > 1 && bucket < FLEET_OUT_BUCKETS - 1; max_tokens >>= 1)
        bucket++;
    return bucket;
}

void learn_finish(struct group_cell *g, int64_t max_tokens, double output_tokens)
{
    int bucket = learn_bucket(max_tokens);
    mean_add(&g->out_w[0], &g->out_wx[0], g->out_w[0] < OUTPUT_SAMPLES ? 1 : OUTPUT_KEEP,
             output_tokens);
    if (bucket)
        mean_add(&g->out_w[bucket], &g->out_wx[bucket],
                 g->out_w[bucket] < OUTPUT_SAMPLES ? 1 : OUTPUT_KEEP, output_tokens);
}

void learn_uncached(struct group_cell *g, double tokens)
{
    mean_add(&g->uncached_w, &g->uncached_wx, UNCACHED_KEEP, tokens);
}

double learn_output(const struct rates *r, int64_t max_tokens)
{
    double expected = r->output_by_limit[learn_bucket(max_tokens)];
    return max_tokens > 0 && expected > (double)max_tokens ? (double)max_tokens : expected;
}

/* A bucket begins as one sample of the mean over all requests. */
static void mean_outputs(struct rates *r, const double *w, const double *wx)
{
    r->output_tokens = w[0] > 0 ? wx[0] / w[0] : START_OUTPUT;
    r->output_by_limit[0] = r->output_tokens;
    for (int i = 1; i < FLEET_OUT_BUCKETS; i++)
        r->output_by_limit[i] = (wx[i] + r->output_tokens) / (w[i] + 1);
}

/* An exponential mean that began at START_UNCACHED. */
static double mean_uncached(double w, double wx)
{
    double full = w * (1 - UNCACHED_KEEP);
    if (full >= 1)
        return wx / w;
    return wx * (1 - UNCACHED_KEEP) + (1 - full) * START_UNCACHED;
}

/* ---- prompt tokens */

double learn_prompt_tokens(const struct rates *r, const double *features)
{
    return tokens_estimate(r->token_weights, features);
}

void learn_prompt(struct group_cell *g, const double *features, double tokens)
{
    tokens_learn(g, features, tokens, TOKENS_KEEP);
}

/* ---- the sums of all processes */

/* From `pace` to the end a group cell is doubles. */
enum {
    GROUP_SUMS = (sizeof(struct group_cell) - offsetof(struct group_cell, pace)) / sizeof(double)
};

static void add_sums(struct group_cell *total, const struct group_cell *g)
{
    double *to = (double *)((char *)total + offsetof(struct group_cell, pace));
    const double *from = (const double *)((const char *)g + offsetof(struct group_cell, pace));
    total->pace_samples += atom_u64(&g->pace_samples);
    total->prefill_samples += atom_u64(&g->prefill_samples);
    for (int i = 0; i < GROUP_SUMS; i++)
        to[i] += atom_f64(&from[i]);
}

void learn_refresh(struct rates *r, struct fleet *f, uint32_t group)
{
    struct group_cell total;
    memset(&total, 0, sizeof total);
    for (uint32_t p = 0; p <= f->processes; p++)
        add_sums(&total, &fleet_block(f, p)->groups[group]);
    fit_pace(r, total.pace, total.pace_samples);
    fit_prefill(r, total.prefill, total.prefill_samples);
    mean_outputs(r, total.out_w, total.out_wx);
    r->uncached_tokens = mean_uncached(total.uncached_w, total.uncached_wx);
    if (total.token_w != r->token_w) {
        r->token_w = total.token_w;
        tokens_solve(&total, r->token_weights);
    }
}

/* ---- slowness */

/* 1 while samples keep coming, then down to 0 at SLOW_FADE_S. */
static double freshness(uint64_t at_ns, uint64_t now_ns)
{
    double age_s = now_ns > at_ns ? (double)(now_ns - at_ns) * 1e-9 : 0;
    if (at_ns == 0 || age_s >= SLOW_FADE_S)
        return 0;
    return age_s < SLOW_FRESH_S ? 1 : (SLOW_FADE_S - age_s) / (SLOW_FADE_S - SLOW_FRESH_S);
}

static double clamp(double s)
{
    return s < SLOW_LEAST ? SLOW_LEAST : s > SLOW_MOST ? SLOW_MOST : s;
}

/* slow_wx + (1 - slow_w)·1 is the exponential mean that began at 1; kept as two sums so that
 * processes can be added. */
void learn_slowness(struct cell *c, uint32_t generation, double gap_s, double pace_s, double weight,
                    double typical, uint64_t now_ns)
{
    int known = c->slow_generation == generation && c->slow_at_ns != 0;
    double fresh = known ? freshness(c->slow_at_ns, now_ns) : 0;
    double w = known ? c->slow_w : 0, wx = known ? c->slow_wx : 0;
    double s = clamp(wx + (1 - w));
    if (known && fresh < 1) {
        w = 1;
        wx = s = fresh * s + (1 - fresh) * typical;
    }
    double x = fmin(gap_s / pace_s, SLOW_CAP * s);
    double part = weight * (1 - exp(-gap_s / SLOW_MEMORY_S));
    if (!(gap_s >= 0) || !isfinite(x))
        return;
    atom_set_u32(&c->slow_generation, generation);
    atom_set_f64(&c->slow_w, w + part * (1 - w));
    atom_set_f64(&c->slow_wx, wx + part * (x - wx));
    atom_set_u64(&c->slow_at_ns, now_ns);
}

void learn_speed_add(struct learn_speed *s, const struct cell *c, uint32_t generation,
                     uint64_t now_ns)
{
    double fresh = freshness(atom_u64(&c->slow_at_ns), now_ns);
    if (fresh <= 0 || atom_u32(&c->slow_generation) != generation)
        return;
    s->w += fresh * atom_f64(&c->slow_w);
    s->wx += fresh * atom_f64(&c->slow_wx);
    if (fresh > s->newest)
        s->newest = fresh;
}

double learn_speed_value(const struct learn_speed *s)
{
    return clamp(s->w >= 1 ? s->wx / s->w : s->wx + (1 - s->w));
}

double learn_speed_last(const struct learn_speed *s)
{
    struct learn_speed last = {0, 0, 1};
    if (s->newest > 0) {
        last.w = s->w / s->newest;
        last.wx = s->wx / s->newest;
    }
    return learn_speed_value(&last);
}
