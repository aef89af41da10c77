/* The lines of a head and their parts, for the two that work on them: head_line.c finds and copies
 * lines, head.c reads what they say. */
#ifndef HEADRACE_HEAD_LINE_H
#define HEADRACE_HEAD_LINE_H

#include <string.h>

#include "head.h"

static inline char head_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }

/* want is in lower case. */
static inline int head_same(const char *s, const char *want, uint32_t len)
{
    uint32_t i;
    for (i = 0; i < len; i++)
        if (head_lower(s[i]) != want[i])
            return 0;
    return 1;
}

/* Without blanks at either end. */
struct head_span head_trim(const char *head, uint32_t from, uint32_t to);

/* Offset behind the line that starts at `at`, or 0 if it does not end in exactly one CR LF or has a
 * stray CR or NUL. *colon is its first one, or 0. */
uint32_t head_line_end(const char *head, uint32_t size, uint32_t at, uint32_t *colon);

/* Next element of a comma-separated list: 1 and *token, or 0. */
int head_next_token(const char *head, struct head_span *list, struct head_span *token);

#endif
