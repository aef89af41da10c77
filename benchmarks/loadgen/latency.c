#include "latency.h"

/* Values below 64 have a bucket each; above, the top seven bits of the value pick one. */
static unsigned latency_bucket(uint64_t value)
{
    if (value < (1u << LATENCY_SUB_BITS))
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - LATENCY_SUB_BITS;
    return (shift << LATENCY_SUB_BITS) + (unsigned)(value >> shift);
}

static uint64_t latency_upper_edge(unsigned bucket)
{
    if (bucket < (1u << LATENCY_SUB_BITS))
        return bucket;
    unsigned shift = (bucket >> LATENCY_SUB_BITS) - 1;
    uint64_t top = bucket - (shift << LATENCY_SUB_BITS);
    return ((top + 1) << shift) - 1;
}

void latency_record(struct latency *latency, uint64_t value_ns)
{
    latency->count++;
    latency->buckets[latency_bucket(value_ns)]++;
    if (value_ns > latency->max_ns)
        latency->max_ns = value_ns;
}

uint64_t latency_percentile_ns(const struct latency *latency, double ratio)
{
    uint64_t wanted = (uint64_t)(ratio * (double)latency->count);
    uint64_t seen = 0;
    for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
        seen += latency->buckets[i];
        if (seen > wanted) {
            uint64_t edge = latency_upper_edge(i);
            return edge < latency->max_ns ? edge : latency->max_ns;
        }
    }
    return latency->max_ns;
}
