#include "budget.h"

#include <math.h>

/* balance in 1/4096 tokens (high 32 bits) | time of the last refill in ticks of 2^26 ns ≈ 67 ms,
 * plus 1 (low 32 bits; it wraps after nine years). The word 0 is a bucket that nobody has touched.
 * A coarse tick keeps the rounding of the floor's deposit small. */
enum { TICK_BITS = 26, UNITS = 4096 };

struct bucket {
    double units;
    uint32_t tick;
};

static struct bucket unpack(uint64_t word, double min_per_s, uint64_t now_ns)
{
    uint32_t now = (uint32_t)(now_ns >> TICK_BITS) + 1;
    if (now == 0)
        now = 1;
    if (word == 0)
        return (struct bucket){min_per_s * UNITS, now};
    struct bucket b = {(double)(word >> 32), (uint32_t)word};
    int32_t ticks = (int32_t)(now - b.tick);
    if (ticks > 0) { /* d units/dt = min_per_s - units / TTL, solved */
        double level = min_per_s * BUDGET_TTL_S * UNITS;
        double keep = exp(-(double)ticks * (double)(1ULL << TICK_BITS) * 1e-9 / BUDGET_TTL_S);
        b.units = level + (b.units - level) * keep;
        b.tick = now;
    }
    return b;
}

static uint64_t pack(struct bucket b)
{
    uint64_t units = b.units >= 4294967295.0 ? 4294967295ULL : (uint64_t)b.units;
    return units << 32 | b.tick;
}

static int change(uint64_t *word, double tokens, double min_per_s, uint64_t now_ns)
{
    uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        struct bucket b = unpack(seen, min_per_s, now_ns);
        b.units += tokens * UNITS;
        if (b.units < 0)
            return -1;
        if (__atomic_compare_exchange_n(word, &seen, pack(b), 1, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return 0;
    }
}

void budget_deposit(uint64_t *word, double ratio, double min_per_s, uint64_t now_ns)
{
    change(word, ratio, min_per_s, now_ns);
}

int budget_withdraw(uint64_t *word, double min_per_s, uint64_t now_ns)
{
    return change(word, -1, min_per_s, now_ns);
}

double budget_balance(const uint64_t *word, double min_per_s, uint64_t now_ns)
{
    return unpack(__atomic_load_n(word, __ATOMIC_RELAXED), min_per_s, now_ns).units / UNITS;
}
