/* Counters with a packed 64-bit key: an open-addressing table with one writer, for the metrics
 * whose labels are only known when they happen. Entry SERIES_SLOTS - 1 is `other`: it takes what
 * comes when the table is full. */
#ifndef HEADRACE_SERIES_H
#define HEADRACE_SERIES_H

#include <stdint.h>

enum { SERIES_SLOTS = 4096 }; /* a power of two */

enum series_kind {
    SERIES_REQUESTS = 1,
    SERIES_DECISIONS,
    SERIES_REJECTED,
    SERIES_RETRIES,
    SERIES_OTHER = 255
};

struct series {
    uint64_t key; /* 0: free */
    uint64_t count;
};

/* kind 8 bits | a 16 | b 12 | c 12 | d 16 */
static inline uint64_t series_key(enum series_kind kind, uint32_t a, uint32_t b, uint32_t c,
                                  uint32_t d)
{
    return (uint64_t)kind << 56 | (uint64_t)(a & 0xffff) << 40 | (uint64_t)(b & 0xfff) << 28 |
           (uint64_t)(c & 0xfff) << 16 | (d & 0xffff);
}

void series_add(struct series *table, uint64_t key, uint64_t n);

#endif
