/* W3C Trace Context, level 1 (https://www.w3.org/TR/trace-context-1/): the `traceparent` header. */
#ifndef HEADRACE_TRACE_H
#define HEADRACE_TRACE_H

#include <stdint.h>

enum { TRACE_DIGITS = 32, TRACE_SPAN_DIGITS = 16, TRACE_SAMPLED = 1 };

struct trace_parent {
    char trace[TRACE_DIGITS];
    char span[TRACE_SPAN_DIGITS];
    unsigned char flags;
};

/* 0, or -1 for a value that is none: then a new trace begins. */
int trace_read(const char *value, uint32_t len, struct trace_parent *out);

#endif
