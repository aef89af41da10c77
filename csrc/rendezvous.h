/* Highest random weight (Thaler, Ravishankar 1996): who holds the same members agrees on one for a
 * key, without a table. */
#ifndef HEADRACE_RENDEZVOUS_H
#define HEADRACE_RENDEZVOUS_H

#include "hash.h"

/* The member with the highest weight for the key wins; id is a hash of its name. */
static inline uint64_t rendezvous_weight(uint64_t key, uint64_t id) { return hash_mix(key, id); }

#endif
