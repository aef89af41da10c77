/* A ring of variable-length records with one producer and one consumer, in shared memory.
 * A record is {u32 length, u32 kind, bytes}, padded to 8. A full ring drops the record and counts
 * it. */
#ifndef HEADRACE_RING_H
#define HEADRACE_RING_H

#include <stdint.h>

enum { RING_BYTES = 1 << 20 }; /* a power of two */

struct ring {
    uint64_t head;    /* bytes ever written; writer: the producer */
    uint64_t dropped; /* records lost to a full ring; writer: the producer */
    uint64_t pad0[6];
    uint64_t tail; /* bytes ever read; writer: the consumer */
    uint64_t pad1[7];
    unsigned char data[RING_BYTES];
};

/* 0, or -1 when the record does not fit (then it is counted as dropped). */
int ring_push(struct ring *r, uint32_t kind, const void *record, uint32_t len);

/* Copies the next record into out; returns its length, -1 when there is none, -2 when it was longer
 * than room (it is skipped). */
int32_t ring_pop(struct ring *r, uint32_t *kind, void *out, uint32_t room);

#endif
