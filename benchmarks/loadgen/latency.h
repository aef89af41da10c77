/* Latency histogram with buckets that are 1/64 of their own value wide: any percentile is
 * within 1.6 %. */
#ifndef LOADGEN_LATENCY_H
#define LOADGEN_LATENCY_H

#include <stdint.h>

#define LATENCY_SUB_BITS 6
#define LATENCY_BUCKETS ((64 - LATENCY_SUB_BITS) << LATENCY_SUB_BITS)

struct latency {
    uint64_t count;
    uint64_t max_ns;
    uint64_t buckets[LATENCY_BUCKETS];
};

void latency_record(struct latency *latency, uint64_t value_ns);

/* Upper edge of the bucket that holds the ratio (0 to 1) of the samples; 0 without samples. */
uint64_t latency_percentile_ns(const struct latency *latency, double ratio);

#endif
