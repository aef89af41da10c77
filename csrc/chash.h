/* Consistent hashing with bounded loads (Karger et al. 1997; Mirrokni, Thorup, Zadimoghaddam 2016).
 *
 * A member's points are hash_mix(hash of its id, index): no two (id, index) share their text,
 * whatever the ids are. A member that leaves moves its own keys only; a change of weight adds or
 * takes points at the end of its own series. */
#ifndef HEADRACE_CHASH_H
#define HEADRACE_CHASH_H

#include <stdint.h>

enum {
    CHASH_POINTS = 128,      /* of a member with weight 1 */
    CHASH_MAX_POINTS = 1024, /* of one member */
};

struct chash_point {
    uint64_t hash;
    uint32_t slot;
    uint32_t order; /* room for the sort */
};

struct chash {
    struct chash_point *points; /* ascending by hash, then slot */
    uint32_t count;
};

/* Points of a member of this weight; at least 1, also for what is no weight. */
uint32_t chash_points(double weight);

/* Writes n points of a member to out. */
void chash_fill(struct chash_point *out, uint32_t n, uint64_t id, uint32_t slot);

/* Sorts points; scratch holds as many. */
void chash_sort(struct chash_point *points, uint32_t count, struct chash_point *scratch);

/* Index of the first point at or after the key, around the ring; count > 0. */
uint32_t chash_find(const struct chash *ring, uint64_t key);

#endif
