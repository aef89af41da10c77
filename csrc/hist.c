#include "hist.h"

static const double bounds[HIST_KINDS][HIST_BUCKETS - 1] = {
    [HIST_DURATION] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1,   1.5, 2,
                       3,     5,    7.5,   10,   15,  20,  30,  60,  120,  300, 600},
    [HIST_TTFT] = {0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                   0.75,  1,    1.5,  2,    3,    5,     7.5, 10,   20,  30,  60},
    [HIST_TPOT] = {0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05,
                   0.06,  0.08,  0.1,   0.15,  0.2,    0.3,  0.5,   0.75, 1,     2,    5},
    [HIST_ITL] = {0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05,
                  0.06,  0.08,  0.1,   0.15,  0.2,    0.3,  0.5,   0.75, 1,     2,    5},
    [HIST_QUEUE_WAIT] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5,
                         0.75,  1,      1.5,   2,    3,     5,    7.5,   10,  20,   30,  60},
    [HIST_OVERHEAD] = {0.00001, 0.00002, 0.00003, 0.00005, 0.000075, 0.0001, 0.00015, 0.0002,
                       0.0003,  0.0005,  0.00075, 0.001,   0.0015,   0.002,  0.003,   0.005,
                       0.01,    0.02,    0.05,    0.1,     0.25,     0.5,    1},
    [HIST_PROBE] = {0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                    0.75,  1,    1.5,  2,    3,    5,     7.5, 10,   20,  30,  60},
};

const double *hist_bounds(enum hist_kind kind) { return bounds[kind]; }

void hist_record(struct hist *h, enum hist_kind kind, double seconds)
{
    const double *b = bounds[kind];
    int lo = 0, hi = HIST_BUCKETS - 1;
    if (!(seconds >= 0))
        return;       /* negative or NaN: a clock that went backwards is no sample */
    while (lo < hi) { /* first bound >= seconds */
        int mid = (lo + hi) / 2;
        if (b[mid] < seconds)
            lo = mid + 1;
        else
            hi = mid;
    }
    atom_add_u64(&h->bucket[lo], 1);
    atom_add_f64(&h->sum, seconds);
}

void hist_merge(struct hist *dst, const struct hist *src)
{
    dst->sum += atom_f64(&src->sum);
    for (int i = 0; i < HIST_BUCKETS; i++)
        dst->bucket[i] += atom_u64(&src->bucket[i]);
}
