/* Hexadecimal digits, eight at a time. */
#ifndef HEADRACE_HEX_H
#define HEADRACE_HEX_H

#include <stdint.h>
#include <string.h>

/* The digits of 32 bits as eight bytes, in no particular order: for values drawn by chance. */
static inline uint64_t hex_digits(uint32_t bits)
{
    uint64_t digits = (uint64_t)(bits & 0xf0f0f0f0) << 28 | (bits & 0x0f0f0f0f);
    uint64_t letters = (digits + 0x0606060606060606) >> 4 & 0x0101010101010101;
    return digits + 0x3030303030303030 + letters * ('a' - '0' - 10);
}

/* Thirty-two digits that stand for high and low. */
static inline void hex_id(char *out, uint64_t high, uint64_t low)
{
    uint64_t text[4] = {hex_digits((uint32_t)high), hex_digits((uint32_t)(high >> 32)),
                        hex_digits((uint32_t)low), hex_digits((uint32_t)(low >> 32))};
    memcpy(out, text, sizeof text);
}

#endif
