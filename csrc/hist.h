/* Histograms for LLM times: fixed bounds in seconds, one writer, readable at any moment.
 * bucket[i] counts samples <= bound[i] and > bound[i-1]; the last bucket is +Inf. */
#ifndef HEADRACE_HIST_H
#define HEADRACE_HIST_H

#include <stddef.h>
#include <stdint.h>

#include "atom.h"

enum { HIST_BUCKETS = 24 };

enum hist_kind {
    HIST_DURATION,
    HIST_TTFT,
    HIST_TPOT,
    HIST_ITL,
    HIST_QUEUE_WAIT,
    HIST_OVERHEAD,
    HIST_PROBE,
    HIST_KINDS
};

struct hist {
    double sum;
    uint64_t bucket[HIST_BUCKETS];
};

/* HIST_BUCKETS - 1 ascending upper bounds in seconds. */
const double *hist_bounds(enum hist_kind kind);

void hist_record(struct hist *h, enum hist_kind kind, double seconds);

/* dst += src; the caller owns dst, src may be written meanwhile. */
void hist_merge(struct hist *dst, const struct hist *src);

#endif
