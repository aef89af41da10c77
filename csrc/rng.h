/* Chance for ties and samples: splitmix64 (Steele, Lea, Flood 2014), a word of state, the same
 * draws for the same seed. */
#ifndef HEADRACE_RNG_H
#define HEADRACE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

/* 0 … n - 1; n > 0. */
static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)(((rng_next(r) >> 32) * n) >> 32);
}

/* In [0, 1). */
static inline double rng_unit(struct rng *r) { return (double)(rng_next(r) >> 11) * 0x1p-53; }

#endif
