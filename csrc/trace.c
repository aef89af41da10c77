#include "trace.h"

#include <string.h>

/* "00-" trace "-" span "-" flags */
enum { TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, FIRST_VERSION_BYTES = 55 };

/* Lower case only, as the specification wants it. */
static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int is_hex(const char *s, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if (digit(s[i]) < 0)
            return 0;
    return 1;
}

static int is_id(const char *s, uint32_t len)
{
    uint32_t zeros = 0;
    while (zeros < len && s[zeros] == '0')
        zeros++;
    return is_hex(s, len) && zeros < len;
}

int trace_read(const char *value, uint32_t len, struct trace_parent *out)
{
    if (len < FIRST_VERSION_BYTES || !is_hex(value, 2) || memcmp(value, "ff", 2) == 0)
        return -1;
    /* A later version may append fields; version 0 may not. */
    if (len > FIRST_VERSION_BYTES &&
        (memcmp(value, "00", 2) == 0 || value[FIRST_VERSION_BYTES] != '-'))
        return -1;
    if (value[TRACE_AT - 1] != '-' || value[SPAN_AT - 1] != '-' || value[FLAGS_AT - 1] != '-')
        return -1;
    if (!is_id(value + TRACE_AT, TRACE_DIGITS) || !is_id(value + SPAN_AT, TRACE_SPAN_DIGITS) ||
        !is_hex(value + FLAGS_AT, 2))
        return -1;
    memcpy(out->trace, value + TRACE_AT, TRACE_DIGITS);
    memcpy(out->span, value + SPAN_AT, TRACE_SPAN_DIGITS);
    out->flags = (unsigned char)(digit(value[FLAGS_AT]) << 4 | digit(value[FLAGS_AT + 1]));
    return 0;
}
