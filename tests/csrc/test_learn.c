#include "learn.h"

#include <math.h>

#include "check.h"
#include "rng.h"
#include "solve.h"
#include "tokens.h"

static struct fleet *f;
static struct rates r;

static struct group_cell *cell_of(uint32_t process) { return &fleet_block(f, process)->groups[1]; }

static void begin(void)
{
    free(f);
    f = calloc(1, fleet_size(2, 0));
    fleet_init(f, 2, 0);
    learn_init(&r);
}

static int near(double got, double want, double ratio)
{
    return fabs(got - want) <= ratio * fabs(want);
}

static void without_samples_the_start_values_hold(void)
{
    begin();
    learn_refresh(&r, f, 1);
    CHECK(r.base_s == 0.020 && r.seq_s == 0.0001 && r.token_s == 1e-4);
    CHECK(r.output_tokens == 200 && r.uncached_tokens == 500);
}

static void a_line_is_found_whichever_process_saw_it(void)
{
    struct rng chance = {1};
    begin();
    for (int i = 0; i < 20000; i++) {
        double n = rng_unit(&chance) * 60, x = rng_unit(&chance) * 8000;
        learn_gap(cell_of((uint32_t)i & 1), n, 0.0065 + 25e-6 * n);
        learn_prefill(cell_of((uint32_t)i & 1), x, 0.010 + x / 35000);
    }
    learn_refresh(&r, f, 1);
    CHECK(near(r.base_s, 0.0065, 0.1) && near(r.seq_s, 25e-6, 0.2));
    CHECK(near(r.token_s, 1.0 / 35000, 0.02) && near(r.first_s, 0.010, 0.05));
    fleet_retire(f, 0); /* what a dead process learned is not lost */
    learn_refresh(&r, f, 1);
    CHECK(near(r.token_s, 1.0 / 35000, 0.02));
}

static void a_pace_is_refitted_every_sixteen_samples(void)
{
    begin();
    for (int i = 0; i < 15; i++)
        learn_gap(cell_of(0), 10, 0.5);
    learn_refresh(&r, f, 1);
    CHECK(r.base_s == 0.020);
    learn_gap(cell_of(0), 10, 0.5);
    learn_refresh(&r, f, 1);
    CHECK(r.base_s > 0.1);
}

static void bounds_hold_for_absurd_samples(void)
{
    begin();
    for (int i = 0; i < 5000; i++) {
        learn_gap(cell_of(0), i % 50, 1e-9);
        learn_prefill(cell_of(0), i % 50, 1e-9);
    }
    learn_refresh(&r, f, 1);
    CHECK(r.base_s >= 1e-3 && r.seq_s >= 1e-6 && r.token_s > 0 && isfinite(r.token_s));
}

static void output_is_a_mean_then_a_moving_one(void)
{
    begin();
    for (int i = 0; i < 200; i++)
        learn_finish(cell_of(0), 0, i < 100 ? 10 : 30);
    learn_refresh(&r, f, 1);
    CHECK(near(r.output_tokens, 20, 1e-9));
    for (int i = 0; i < 2000; i++)
        learn_finish(cell_of(0), 100, 50);
    learn_refresh(&r, f, 1);
    CHECK(near(r.output_tokens, 50, 0.01));
    CHECK(learn_output(&r, 100) > 49 && learn_output(&r, 20) <= 20);
    CHECK(learn_bucket(0) == 0 && learn_bucket(-3) == 0 && learn_bucket(1) == 1);
    CHECK(learn_bucket(INT64_MAX) == FLEET_OUT_BUCKETS - 1);
}

static void uncached_tokens_move_from_five_hundred(void)
{
    begin();
    learn_uncached(cell_of(0), 100);
    learn_refresh(&r, f, 1);
    CHECK(near(r.uncached_tokens, 496, 1e-9));
    for (int i = 0; i < 2000; i++)
        learn_uncached(cell_of((uint32_t)i & 1), 100);
    learn_refresh(&r, f, 1);
    CHECK(near(r.uncached_tokens, 100, 0.001));
}

static double slowness(uint64_t now_ns, uint32_t generation)
{
    struct learn_speed s = {0, 0, 0};
    for (uint32_t p = 0; p <= 2; p++)
        learn_speed_add(&s, &fleet_block(f, p)->cells[3], generation, now_ns);
    return learn_speed_value(&s);
}

static void slowness_follows_gaps_and_fades_without_them(void)
{
    struct cell *c;
    uint64_t now = 1000000000;
    begin();
    c = &fleet_block(f, 0)->cells[3];
    CHECK(slowness(now, 1) == 1);
    for (int i = 0; i < 500; i++)
        learn_slowness(c, 1, 0.04, 0.02, 1, 1, now += 40000000);
    CHECK(near(slowness(now, 1), 2, 0.05));
    CHECK(near(slowness(now + 15500000000, 1), 1.5, 0.05)); /* half of the way back to 1 */
    CHECK(slowness(now + 30000000000, 1) == 1);
    CHECK(slowness(now, 2) == 1); /* another generation: nothing is known */
    for (int i = 0; i < 3; i++)
        learn_slowness(c, 2, 100, 0.02, 1, 1, now += 1000000);
    CHECK(slowness(now, 2) <= 10);
    learn_slowness(c, 2, NAN, 0.02, 1, 1, now);
    learn_slowness(c, 2, 0.02, 0, 1, 1, now);
    CHECK(isfinite(slowness(now, 2)));
}

/* Twice the starting base and a steep slope, seen at small batches only. */
static void a_slow_model_at_small_batches_keeps_a_slope(void)
{
    struct rates r;
    begin();
    learn_init(&r);
    for (int i = 0; i < 320; i++) {
        double n = i % 4;
        learn_gap(cell_of(0), n, 0.04 + 0.005 * n);
    }
    learn_refresh(&r, f, 1);
    CHECK(r.seq_s > 1e-4 && r.seq_s < 0.005);
    CHECK(fabs(learn_pace_s(&r, 1.5) - 0.0475) < 0.002);
}

static void what_has_faded_is_as_slow_as_the_group(void)
{
    struct learn_speed s = {0, 0, 0};
    struct cell *c;
    uint64_t now = 1000000000;
    begin();
    c = &fleet_block(f, 0)->cells[3];
    for (int i = 0; i < 500; i++)
        learn_slowness(c, 1, 0.06, 0.02, 1, 0.8, now += 60000000);
    learn_speed_add(&s, c, 1, now + 15500000000);
    CHECK(near(s.newest, 0.5, 0.01) && near(learn_speed_last(&s), 3, 0.05));
    learn_slowness(c, 1, 0.016, 0.02, 1, 0.8, now += 15500000000);
    CHECK(near(slowness(now, 1), 1.9, 0.05)); /* half of 3, half of the group's 0.8 */
    learn_slowness(c, 1, 0.016, 0.02, 1, 0.8, now += 30000000000);
    CHECK(near(slowness(now, 1), 0.8, 0.01));
}

static void two_processes_say_it_together(void)
{
    uint64_t now = 1000000000;
    begin();
    for (int i = 0; i < 1000; i++, now += 20000000) {
        learn_slowness(&fleet_block(f, 0)->cells[3], 1, 0.06, 0.02, 1, 1, now);
        learn_slowness(&fleet_block(f, 1)->cells[3], 1, 0.02, 0.02, 1, 1, now);
    }
    CHECK(near(slowness(now, 1), 2, 0.2));
}

static void a_system_is_solved_and_an_indefinite_one_refused(void)
{
    double a[6] = {4, 2, 5, 1, 3, 6}, b[3] = {9, 21, 25}, x[3];
    CHECK(solve_spd(a, b, x, 3) == 0);
    CHECK(fabs(4 * x[0] + 2 * x[1] + x[2] - 9) < 1e-9);
    CHECK(fabs(2 * x[0] + 5 * x[1] + 3 * x[2] - 21) < 1e-9);
    CHECK(fabs(x[0] + 3 * x[1] + 6 * x[2] - 25) < 1e-9);
    double bad[3] = {1, 2, 1};
    CHECK(solve_spd(bad, b, x, 2) == -1);
}

static void prompts_calibrate_the_estimate(void)
{
    struct rng chance = {5};
    double truth[FLEET_FEATURES] = {0.2, 0.3, 1, 0.01, 0.1, 0.5, 0.2, 0.9, 1.1, 2, 6, 1};
    double features[FLEET_FEATURES], worst = 0;
    begin();
    for (int i = 0; i < 400; i++) {
        double tokens = 0;
        for (int k = 0; k < TOKEN_EXACT; k++)
            tokens += truth[k] * (features[k] = rng_unit(&chance) * 500);
        features[TOKEN_EXACT] = 0;
        learn_refresh(&r, f, 1);
        if (i >= 100)
            worst = fmax(worst, fabs(learn_prompt_tokens(&r, features) / tokens - 1));
        learn_prompt(cell_of(0), features, tokens);
    }
    CHECK(worst < 0.15);
    features[TOKEN_EXACT] = 1e6; /* what is exact is added, and teaches nothing */
    double before = cell_of(0)->token_w;
    learn_prompt(cell_of(0), features, 5);
    CHECK(cell_of(0)->token_w == before && learn_prompt_tokens(&r, features) > 1e6);
}

int main(void)
{
    without_samples_the_start_values_hold();
    a_line_is_found_whichever_process_saw_it();
    a_pace_is_refitted_every_sixteen_samples();
    bounds_hold_for_absurd_samples();
    output_is_a_mean_then_a_moving_one();
    uncached_tokens_move_from_five_hundred();
    slowness_follows_gaps_and_fades_without_them();
    a_slow_model_at_small_batches_keeps_a_slope();
    what_has_faded_is_as_slow_as_the_group();
    two_processes_say_it_together();
    a_system_is_solved_and_an_indefinite_one_refused();
    prompts_calibrate_the_estimate();
    free(f);
    return 0;
}
