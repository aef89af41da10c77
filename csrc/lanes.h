/* Sixteen bytes at a time, through the compilers' vector extensions: SSE2 on x86-64, NEON on arm64,
 * plain integers elsewhere. A lane of a mask is -1 (true) or 0. */
#ifndef HEADRACE_LANES_H
#define HEADRACE_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define LANES 16

typedef signed char lanes __attribute__((vector_size(LANES)));

static inline lanes lanes_load(const unsigned char *p)
{
    lanes v;
    memcpy(&v, p, LANES);
    return v;
}

/* The last len < 16 bytes of a buffer, followed by zeros: nothing beyond the buffer is read. */
static inline lanes lanes_load_tail(const unsigned char *p, size_t len)
{
    unsigned char bytes[LANES] = {0};
    memcpy(bytes, p, len);
    return lanes_load(bytes);
}

/* At most 16 bytes of [p, end), zeros behind them. */
static inline lanes lanes_load_within(const unsigned char *p, const unsigned char *end)
{
    size_t len = (size_t)(end - p);
    return len >= LANES ? lanes_load(p) : lanes_load_tail(p, len);
}

/* Index of the first true lane of a mask, 16 if there is none. */
static inline int lanes_first(lanes mask)
{
#if defined(__SSE2__)
    return __builtin_ctz((unsigned)_mm_movemask_epi8((__m128i)mask) | 1U << LANES);
#else
    uint64_t words[2];
    memcpy(words, &mask, LANES);
    if (words[0])
        return __builtin_ctzll(words[0]) >> 3;
    return words[1] ? 8 + (__builtin_ctzll(words[1]) >> 3) : LANES;
#endif
}

/* Every lane moves up by one; first enters at lane 0. */
static inline lanes lanes_shift_in(lanes v, signed char first)
{
#if defined(__SSE2__)
    return (lanes)_mm_or_si128(_mm_slli_si128((__m128i)v, 1),
                               _mm_cvtsi32_si128((unsigned char)first));
#elif defined(__ARM_NEON)
    return (lanes)vextq_s8(vdupq_n_s8(first), (int8x16_t)v, 15);
#else
    signed char bytes[LANES + 1];
    bytes[0] = first;
    memcpy(bytes + 1, &v, LANES);
    memcpy(&v, bytes, LANES);
    return v;
#endif
}

/* True where a byte of a JSON string needs a look: the quote, the backslash, controls and (signed!)
 * all of UTF-8's multi-byte range. */
static inline lanes lanes_special(lanes v) { return (v < 0x20) | (v == '"') | (v == '\\'); }

#endif
