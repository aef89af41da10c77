/* Who of a model's replicas may take a request now: the filter before every policy. */
#ifndef HEADRACE_ADMIT_H
#define HEADRACE_ADMIT_H

#include "view.h"

enum admit {
    ADMIT_YES,
    ADMIT_TRIED,        /* this request has failed there */
    ADMIT_NOT_ELIGIBLE, /* control took it out */
    ADMIT_TRICKLE,      /* half-open and busy */
    ADMIT_OVERLOADED,   /* above overload_ratio × max_concurrency */
    ADMIT_QUEUE,        /* the engine's queue is above max_queue */
    ADMIT_SLOW_START,   /* has its share of the ramp; taken all the same when nobody else is left */
    ADMIT_NO_WEIGHT,    /* weight 0 beside others that have one */
    ADMITS,
};

extern const char *const admit_names[ADMITS];

struct admit_rules {
    const uint16_t *tried; /* slots */
    int tried_count;
};

/* What became of it: candidates by index in slots and by slot, and how often each answer was given.
 */
struct admitted {
    int count;
    int by[ADMITS];
    uint16_t index[FLEET_SLOTS];
    uint16_t slot[FLEET_SLOTS];
};

/* why (one byte a slot) may be NULL. */
void admit_all(const struct view *v, const uint16_t *slots, int n, const struct admit_rules *rules,
               struct admitted *out, uint8_t *why);

#endif
