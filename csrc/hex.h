/* Hexadecimal digits, eight at a time. */
#ifndef HEADRACE_HEX_H
#define HEADRACE_HEX_H

#include <stdint.h>
#include <string.h>

/* The eight digits of 32 bits, the first in the lowest byte. */
static inline uint64_t hex_digits(uint32_t bits)
{
    uint64_t digits = __builtin_bswap32(bits), letters;
    digits = (digits | digits << 16) & 0x0000ffff0000ffff;
    digits = (digits | digits << 8) & 0x00ff00ff00ff00ff;
    digits = (digits >> 4 & 0x000f000f000f000f) | (digits & 0x000f000f000f000f) << 8;
    letters = (digits + 0x0606060606060606) >> 4 & 0x0101010101010101;
    return digits + 0x3030303030303030 + letters * ('a' - '0' - 10);
}

/* Sixteen lower-case digits. */
static inline void hex_write(uint64_t value, char *out)
{
    uint64_t text[2] = {hex_digits((uint32_t)(value >> 32)), hex_digits((uint32_t)value)};
    memcpy(out, text, sizeof text);
}

#endif
