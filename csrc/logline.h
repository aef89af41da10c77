/* The access log: a record (record.h) as one line of JSON. */
#ifndef HEADRACE_LOGLINE_H
#define HEADRACE_LOGLINE_H

#include <stddef.h>
#include <stdint.h>

/* A JSON value as it stands in a line: a quoted and escaped string, or null. */
struct logline_value {
    const char *start;
    uint32_t len;
};

/* Names by number; `other` for numbers that have none. */
struct logline_names {
    const struct logline_value *values;
    uint32_t count;
    struct logline_value other;
};

struct logline {
    struct logline_value policy;
    struct logline_names endpoints, outcomes, reasons, models, replicas; /* replicas: by slot */
    size_t line_bytes;                                                   /* no line is longer */
};

/* Sets line_bytes; all names are there. */
void logline_prepare(struct logline *l);

/* Writes the line of an access record, line feed and all. What is unknown is null, times are in
 * seconds, numbers have at most nine decimals. Bytes of the text are code points up to U+00FF, as
 * in header fields.
 *
 * record: struct access_record and its text, aligned or not; len: bytes of both.
 * Returns the line's length, 0 if this is no whole record, -1 if room is less than line_bytes. */
ptrdiff_t logline_write(const struct logline *l, const void *record, uint32_t len, char *out,
                        size_t room);

#endif
