#include "lb.h"

#include <math.h>
#include <string.h>

#include "admit.h"
#include "check.h"
#include "due.h"
#include "hash.h"
#include "rendezvous.h"

enum { MOST = FLEET_SLOTS };

static struct view *v;
static struct rates rates;
static struct prefix_match match;
static struct chash_point points[MOST * CHASH_POINTS], scratch[MOST * CHASH_POINTS];
static uint64_t ids[MOST];
static uint16_t slots[MOST];
static double turns[MOST], score[MOST], speed[MOST];
static struct chash ring;
static struct rng chance;
static struct lb_request request;

static struct lb_pool pool_of(int n)
{
    view_init(v, 0);
    learn_init(&rates);
    memset(&match, 0, sizeof match);
    memset(turns, 0, sizeof turns);
    memset(&request, 0, sizeof request);
    request.cost = (struct cost_request){1000, 200, 1};
    request.block_tokens = 64;
    ring = (struct chash){points, 0};
    chance.state = 1;
    for (int i = 0; i < n; i++) {
        slots[i] = (uint16_t)i;
        ids[i] = hash_mix((uint64_t)i, 99);
        v->weight[i] = v->ramp[i] = 1;
        v->max_concurrency[i] = 100;
        v->limit[i] = 50;
        speed[i] = 1;
        v->flags[i] = ROW_USED | ROW_ELIGIBLE;
        chash_fill(points + ring.count, CHASH_POINTS, ids[i], (uint32_t)i);
        ring.count += CHASH_POINTS;
    }
    chash_sort(points, ring.count, scratch);
    return (struct lb_pool){v,     &rates, &match, &ring, ids, slots,
                            turns, n,      speed,  1.25,  1,   &chance};
}

static int pick(enum lb_policy policy, const struct lb_pool *p)
{
    return lb_pick(lb_ops_of(policy), p, &request, score).place;
}

static void a_ring_is_sorted_balanced_and_moves_little(void)
{
    enum { N = 20, KEYS = 20000 };
    struct lb_pool p = pool_of(N);
    uint32_t owner[KEYS], count[N] = {0}, moved = 0;
    for (uint32_t i = 1; i < ring.count; i++)
        CHECK(points[i - 1].hash <= points[i].hash);
    for (uint32_t k = 0; k < KEYS; k++)
        count[owner[k] = points[chash_find(p.ring, hash_mix(k, 7))].slot]++;
    for (int i = 0; i < N; i++)
        CHECK(count[i] > KEYS / N / 2 && count[i] < KEYS / N * 2);
    pool_of(N - 1); /* the last one leaves */
    for (uint32_t k = 0; k < KEYS; k++)
        if (points[chash_find(&ring, hash_mix(k, 7))].slot != owner[k]) {
            CHECK(owner[k] == N - 1);
            moved++;
        }
    CHECK(moved == count[N - 1]);
    CHECK(chash_points(0) == 1 && chash_points(NAN) == 1 && chash_points(1e9) == CHASH_MAX_POINTS);
}

static void every_policy_picks_a_candidate(void)
{
    for (int n = 1; n <= 40; n += 13)
        for (int policy = 0; policy < LB_POLICIES; policy++) {
            struct lb_pool p = pool_of(n);
            request.has_session = policy & 1;
            request.session = 12345;
            for (int i = 0; i < 200; i++) {
                int place = pick((enum lb_policy)policy, &p);
                CHECK(place >= 0 && place < n);
                v->seqs[slots[place]]++;
            }
        }
}

static void zero_weights_are_equal_weights(void)
{
    for (int policy = 0; policy < LB_POLICIES; policy++) {
        struct lb_pool p = pool_of(4);
        int seen[4] = {0};
        request.has_session = 1;
        for (int i = 0; i < 4; i++)
            v->weight[i] = 0;
        for (int i = 0; i < 200; i++) {
            request.session = hash_mix((uint64_t)i, 3);
            int place = pick((enum lb_policy)policy, &p);
            seen[place]++;
            v->seqs[place]++;
        }
        for (int i = 0; i < 4; i++)
            CHECK(seen[i] > 20);
    }
}

static void cost_is_what_the_formula_says(void)
{
    struct lb_pool p = pool_of(2);
    struct cost_terms t;
    v->seqs[1] = 10;
    v->pending_s[1] = 0.5;
    v->kv_tokens[1] = 9500;
    v->kv_capacity[1] = 10000;
    v->kv_per_token[1] = 1e-4;
    v->slow[1] = 2;
    v->slow_fresh[1] = 1;
    v->weight[1] = 0.5;
    rates.output_tokens = 200;
    cost_explain(p.view, p.rates, 1, 1, &request.cost, 400, &t);
    double pace = 0.020 + 0.0001 * 10, u = 600;
    double own = 1.5 * pace + 0.5 + u / 10000 + 0.2 * 10 * 200 * 0.0001;
    double full = ((9500 + u + 0.3 * 400 + 100) / 10000 - 0.9) * 200 * pace;
    double want = 2 / 0.5 * (own + full) + u / 10000;
    CHECK(fabs(t.total - want) < 1e-9 && t.slowness == 2);
    uint16_t slot = 1;
    double hit = 400, got;
    cost_speeds(p.view, slots, 2, 1, speed);
    cost_all(p.view, p.rates, &slot, 1, speed, &request.cost, &hit, &got);
    CHECK(fabs(got - want) < 1e-9);
}

static void hits_fade_with_age(void)
{
    CHECK(cost_hit_tokens(1000, 64, 10, 0) == 640);
    CHECK(fabs(cost_hit_tokens(1000, 64, 10, 0.5f) - 480) < 1e-6);
    CHECK(cost_hit_tokens(100, 64, 10, 0) == 100);
    CHECK(cost_block_tokens(655, 10) > 62 && cost_block_tokens(655, 10) < 63);
    CHECK(cost_block_tokens(1e6, 10) == 64 && cost_block_tokens(1, 100) == 64);
    CHECK(cost_block_tokens(1e6, PREFIX_MAX_BLOCKS) == 64);
}

static void round_robin_interleaves_by_weight(void)
{
    struct lb_pool p = pool_of(3);
    int seen[3] = {0}, last = -1, twice = 0;
    v->weight[0] = 2;
    for (int i = 0; i < 400; i++) {
        int place = pick(LB_ROUND_ROBIN, &p);
        seen[place]++;
        twice += place == last;
        last = place;
    }
    CHECK(seen[0] == 200 && seen[1] == 100 && seen[2] == 100 && twice <= 100);
}

static void bounded_load_holds_but_for_the_last_resort(void)
{
    for (int n = 2; n <= 600; n = n * 3 + 1) {
        struct lb_pool p = pool_of(n);
        int total = 0;
        for (int i = 0; i < 3 * n; i++) {
            struct lb_choice c;
            request.has_session = 1;
            request.session = i % 3 ? 77 : hash_mix((uint64_t)i, 1);
            c = lb_pick(lb_ops_of(LB_CONSISTENT_HASH), &p, &request, score);
            double limit = fmax(2, 1.25 * (total + 1) / n);
            if (c.reason != LB_LAST_RESORT)
                CHECK(v->seqs[slots[c.place]] + 1 <= limit);
            else
                for (int k = 0; k < n; k++)
                    CHECK(v->seqs[k] >= v->seqs[c.place] && v->seqs[k] + 1 > limit);
            v->seqs[slots[c.place]]++;
            total++;
        }
    }
}

static void the_herd_rule_keeps_to_the_best_third(void)
{
    struct lb_pool p = pool_of(9);
    int seen[9] = {0};
    for (int i = 0; i < 9; i++)
        v->foreign_seqs[i] = 0.1 * i;
    for (int i = 0; i < 3000; i++)
        seen[pick(LB_LEAST_LOAD, &p)]++;
    CHECK(seen[0] > 800 && seen[1] > 800 && seen[2] > 800);
    for (int i = 0; i < 9; i++) /* 15 against 12: three go to the second */
        v->foreign_seqs[i] = i == 4 ? 12 : 15;
    for (int i = 0; i < 3; i++) {
        CHECK(pick(LB_LEAST_LOAD, &p) == 4);
        v->seqs[4]++;
    }
}

static void gateways_agree_within_the_window(void)
{
    struct lb_pool p = pool_of(10);
    uint64_t key = 4242;
    request.prefix = &key;
    request.prefix_count = 1;
    p.gateways = 2;
    int first = pick(LB_COST_AWARE, &p);
    for (int i = 0; i < 50; i++)
        CHECK(pick(LB_COST_AWARE, &p) == first);
    v->pending_s[first] = 10;
    CHECK(pick(LB_COST_AWARE, &p) != first);
}

static void admission_says_why(void)
{
    struct admitted out;
    uint8_t why[8];
    uint16_t tried = 7;
    struct admit_rules rules = {&tried, 1};
    struct lb_pool p = pool_of(8);
    v->flags[0] = ROW_USED;
    v->flags[1] |= ROW_TRICKLE;
    v->requests[1] = 1;
    v->requests[2] = 51;
    v->requests[3] = 50; /* at the limit is not above it */
    v->max_queue[4] = 5;
    v->waiting[4] = 6;
    v->ramp[5] = 0.1;
    v->requests[5] = 9;
    v->weight[6] = 0;
    admit_all(p.view, slots, 8, &rules, &out, why);
    const uint8_t want[8] = {ADMIT_NOT_ELIGIBLE, ADMIT_TRICKLE,    ADMIT_OVERLOADED, ADMIT_YES,
                             ADMIT_QUEUE,        ADMIT_SLOW_START, ADMIT_NO_WEIGHT,  ADMIT_TRIED};
    CHECK(memcmp(why, want, 8) == 0 && out.count == 1 && out.index[0] == 3);
    v->requests[3] = 51;
    admit_all(p.view, slots, 8, &rules, &out, why);
    CHECK(out.count == 1 && out.index[0] == 5); /* slow start yields when nobody else is left */
    v->waiting[4] = -1;                         /* unknown is no reason */
    admit_all(p.view, slots, 8, &rules, &out, why);
    CHECK(why[4] == ADMIT_YES);
}

static void what_is_due_comes_in_order(void)
{
    enum { N = 300 };
    struct due entries[N];
    int32_t place[N];
    struct due_heap h = {entries, 0, N};
    for (int i = 0; i < N; i++)
        CHECK(due_push(&h, (struct due){1 + rng_below(&chance, 999), &place[i], &place[i]}) == 0);
    CHECK(due_push(&h, (struct due){1, NULL, &place[0]}) == -1);
    for (int i = 0; i < N; i += 3)
        due_remove(&h, place[i]);
    uint64_t last = 0;
    for (int left = h.count; left > 0; left--) {
        struct due *d = due_first(&h, 1000);
        CHECK(d && d->at_ns >= last && !due_first(&h, d->at_ns - 1));
        last = d->at_ns;
        due_remove(&h, *d->place);
    }
    CHECK(h.count == 0 && !due_first(&h, UINT64_MAX));
}

int main(void)
{
    v = calloc(1, sizeof *v);
    a_ring_is_sorted_balanced_and_moves_little();
    every_policy_picks_a_candidate();
    zero_weights_are_equal_weights();
    cost_is_what_the_formula_says();
    hits_fade_with_age();
    round_robin_interleaves_by_weight();
    bounded_load_holds_but_for_the_last_resort();
    the_herd_rule_keeps_to_the_best_third();
    gateways_agree_within_the_window();
    admission_says_why();
    what_is_due_comes_in_order();
    free(v);
    return 0;
}
