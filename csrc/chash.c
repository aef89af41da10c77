#include "chash.h"

#include "hash.h"

enum { SORT_BITS = 11 };

uint32_t chash_points(double weight)
{
    double n = weight * CHASH_POINTS;
    if (!(n >= 1))
        return 1;
    return n >= CHASH_MAX_POINTS ? CHASH_MAX_POINTS : (uint32_t)n;
}

void chash_fill(struct chash_point *out, uint32_t n, uint64_t id, uint32_t slot)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct chash_point){hash_mix(id, i), slot, 0};
}

static int before(struct chash_point a, struct chash_point b)
{
    return a.hash < b.hash || (a.hash == b.hash && a.slot < b.slot);
}

/* Hashes are uniform, so a bucket by the top bits holds a few dozen points even on the largest
 * ring: one pass, then insertion. */
void chash_sort(struct chash_point *points, uint32_t count, struct chash_point *scratch)
{
    uint32_t start[(1 << SORT_BITS) + 1] = {0};
    for (uint32_t i = 0; i < count; i++)
        start[(points[i].hash >> (64 - SORT_BITS)) + 1]++;
    for (uint32_t i = 0; i < 1 << SORT_BITS; i++)
        start[i + 1] += start[i];
    for (uint32_t i = 0; i < count; i++)
        scratch[start[points[i].hash >> (64 - SORT_BITS)]++] = points[i];
    for (uint32_t i = 0; i < count; i++) {
        struct chash_point p = scratch[i];
        uint32_t at = i;
        for (; at > 0 && before(p, points[at - 1]); at--)
            points[at] = points[at - 1];
        points[at] = p;
    }
}

uint32_t chash_find(const struct chash *ring, uint64_t key)
{
    uint32_t lo = 0, hi = ring->count;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (ring->points[mid].hash < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo == ring->count ? 0 : lo;
}
