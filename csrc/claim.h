/* A claim: what one attempt holds of a replica's in-flight sums. It is booked in the process's cell
 * and in its view at once, and given back exactly, into the cell it was taken from. Amounts are
 * multiples of small powers of two, so sums of doubles come back to zero. */
#ifndef HEADRACE_CLAIM_H
#define HEADRACE_CLAIM_H

#include "fleet.h"
#include "view.h"

struct claim {
    uint16_t slot;
    uint16_t pair;
    int32_t sequences;
    uint32_t generation; /* of the replica */
    uint8_t open;
    uint8_t decoding;                  /* past the first token */
    double uncached_tokens, prefill_s; /* pending until the first token */
    double kv_tokens, inflight_tokens; /* until the end */
};

/* Fields slot … inflight_tokens say what to take; opens it. */
void claim_open(struct claim *c, struct process_block *b, struct view *v, uint64_t now_ns);

/* The first token: prefill is no longer pending. Nothing if it is past it, or not open. */
void claim_decode(struct claim *c, struct process_block *b, struct view *v, uint64_t now_ns);

/* Tokens were generated; not negative. */
void claim_grow(struct claim *c, struct process_block *b, struct view *v, double tokens);

/* Gives everything back; 0, or -1 if it was not open. */
int claim_close(struct claim *c, struct process_block *b, struct view *v, uint64_t now_ns);

#endif
