/* XXH64 after its published specification: the one hash of the project (ring points, affinity keys,
 * prefix blocks). The same in every process, host and release; the tests compare it with the xxhash
 * package. */
#ifndef HEADRACE_HASH_H
#define HEADRACE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);

/* Mixes two 64-bit values into one; both count fully (the finaliser of XXH64 over a ^ rotl(b)). */
static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    uint64_t h = a ^ ((b << 27) | (b >> 37)) * 0x9E3779B185EBCA87ULL;
    h ^= h >> 33;
    h *= 0xC2B2AE3D27D4EB4FULL;
    h ^= h >> 29;
    h *= 0x165667B19E3779F9ULL;
    return h ^ (h >> 32);
}

#endif
