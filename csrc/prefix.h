/* Which replica holds which prompt blocks in its prefix cache: a set-associative table in the
 * segment, shared by all processes.
 *
 * An entry is 8 bytes, tag 31 bits | slot 10 | count 23, and 0 is free. A set is 16 entries, two
 * cache lines; a block's set and tag come from its key, so a block that sits on many replicas has
 * room for 16 of them. `count` is the slot's insertion counter when the block was last used there.
 * The block counts as resident while fewer than the replica's capacity were inserted after it: age
 * = counter
 * - count (modulo 2^23) < capacity. There is no eviction pass, no tree, no allocation; a lost race
 * costs one estimate.
 *
 * A replica that loses its cache moves its counter on by PREFIX_MAX_CAPACITY, so every entry it had
 * is at once older than any capacity. A count repeats after 2^23 insertions; prefix_sweep has to
 * have passed before that, or an entry that nobody touched would look young. */
#ifndef HEADRACE_PREFIX_H
#define HEADRACE_PREFIX_H

#include <stdint.h>

#include "fleet.h"

enum {
    PREFIX_WAYS = 16,
    PREFIX_SET_BYTES = 128,
    PREFIX_BLOCK_TOKENS = 64,
    PREFIX_MAX_BLOCKS = 512, /* of one prompt that are looked at */
    PREFIX_COUNT_BITS = 23,
    PREFIX_MAX_CAPACITY = 1 << 20,  /* blocks, 67 M tokens */
    PREFIX_DEFAULT_CAPACITY = 6000, /* of a replica whose KV capacity is unknown */
    PREFIX_MAX_JUMPS = 6, /* prefix_forget calls for a slot before a whole sweep must have passed */
};

struct prefix_table {
    uint64_t *entries;
    uint64_t sets;      /* 0: no table; nothing is ever resident */
    uint64_t *inserted; /* by slot, shared */
};

/* By slot: how much of a prompt is resident. Only slots that were asked for are set. */
struct prefix_match {
    uint16_t blocks[FLEET_SLOTS];
    float age[FLEET_SLOTS]; /* of the deepest block, as a ratio of the capacity, < 1 */
};

struct prefix_table prefix_of(struct fleet *f);

/* Blocks that a replica with so many tokens of KV holds; 0 or less: unknown. */
uint32_t prefix_capacity(int64_t kv_capacity_tokens);

/* Finds the deepest resident block of keys[0 … count - 1] on each of n slots; a chained key proves
 * its whole prefix. capacity is by slot. */
void prefix_lookup(const struct prefix_table *t, const uint64_t *keys, int count,
                   const uint16_t *slots, int n, const uint32_t *capacity,
                   struct prefix_match *out);

/* Books all keys as used on a slot, of which `added` blocks are new there. */
void prefix_insert(const struct prefix_table *t, const uint64_t *keys, int count, uint32_t slot,
                   uint32_t added, const uint32_t *capacity);

/* Blocks that went into the slot's cache without a key (generated ones). */
void prefix_advance(const struct prefix_table *t, uint32_t slot, uint32_t blocks);

/* Nothing is resident on the slot any more. Control only. */
void prefix_forget(const struct prefix_table *t, uint32_t slot);

/* The keys are not resident on the slot any more. Control only. */
void prefix_remove(const struct prefix_table *t, const uint64_t *keys, int count, uint32_t slot);

/* Frees the dead entries of sets [from, from + n); returns how many are alive. Control only. */
uint64_t prefix_sweep(const struct prefix_table *t, uint64_t from, uint64_t n,
                      const uint32_t *capacity);

#endif
