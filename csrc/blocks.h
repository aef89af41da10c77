/* Collects bytes into blocks of 256 and chains their hashes: a key proves everything before it. */
#ifndef HEADRACE_BLOCKS_H
#define HEADRACE_BLOCKS_H

#include "json.h"

#define BLOCK_BYTES 256

/* The slack behind a block takes whole lanes. keys NULL: only the chain is wanted. At count == max
 * nothing more is looked at. Starts with all else 0. */
struct blocks {
    unsigned char bytes[BLOCK_BYTES + LANES];
    size_t used;
    uint64_t chain;
    uint64_t *keys;
    size_t count, max;
};

static inline int blocks_are_full(const struct blocks *b) { return b->count == b->max; }

void blocks_add_byte(struct blocks *b, unsigned char byte);

/* Text as it is. */
void blocks_add_bytes(struct blocks *b, const unsigned char *p, size_t len);

/* The len <= 8 low bytes of a number, lowest first. */
void blocks_add_number(struct blocks *b, uint64_t value, int len);

/* The decoded text of the string at j->p, which is known to be valid; j->p is behind it then, or
 * anywhere in it once the blocks are full. */
void blocks_add_string(struct blocks *b, struct json *j);

/* The chain over all bytes, those of the unfinished block included. */
uint64_t blocks_digest(const struct blocks *b);

#endif
