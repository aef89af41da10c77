/* Observes an event stream beside a relay that passes its bytes on untouched: fed with pieces of
 * any size, says where events end and what they mean. Results do not depend on how the stream is
 * cut. Nothing is buffered: an event of any size costs the same few hundred bytes. */
#ifndef HEADRACE_SSE_H
#define HEADRACE_SSE_H

#include "answer.h"

#define SSE_NAME_BYTES 64

/* What a completed event is; several may hold at once. */
enum sse_class {
    SSE_COMMENT = 1,    /* lines without data: comments, or a name alone; counts as no event */
    SSE_PREAMBLE = 2,   /* response.created, response.in_progress, message_start, ping … */
    SSE_CONTENT = 4,    /* text, a role, a call, reasoning or a finish */
    SSE_USAGE_ONLY = 8, /* usage with `choices: []` */
    SSE_ERROR = 16,
    SSE_END = 32, /* [DONE], message_stop, response.completed / incomplete / failed */
};

/* Offsets count from the stream's first byte. */
struct sse {
    uint64_t position, event_start;  /* between them lies an event that has not ended */
    uint64_t events, content_events; /* completed so far */
    uint64_t last_start, last_end;   /* of the last completed event, with its empty line */
    uint64_t head_end; /* of the first that is neither comment nor preamble; 0: none */
    uint64_t usage_start, usage_end; /* of the last usage-only event; 0, 0: none */
    unsigned char seen;              /* classes of all completed events */
    unsigned char last_class, head_class;

    /* of the first error event, as in struct answer */
    unsigned char refused, going_away, error_text_bytes;
    int32_t error_code;
    char error_text[ANSWER_TOKEN_BYTES];

    struct answer answer; /* usage, finishes and aborted hold for the whole stream */

    /* the line and event at hand */
    unsigned char field, after_colon, after_return, has_data, has_lines, line_has_bytes;
    unsigned char text_bytes, name_bytes, mark_bytes;
    char text[8];              /* the field's name */
    char name[SSE_NAME_BYTES]; /* of the event */
    char mark[8];              /* the data's first bytes */
};
_Static_assert(sizeof(struct sse) <= 512, "an idle stream is small");

void sse_init(struct sse *s);

/* Takes bytes up to the end of the next event, or all; returns how many. An event (or a comment)
 * was completed if s->last_end equals s->position afterwards; that may take 0 bytes where a line
 * ends in a lone carriage return. */
size_t sse_step(struct sse *s, const char *bytes, size_t len);

/* Takes all bytes; returns how many events (comments not counted) were completed in them. */
uint64_t sse_feed(struct sse *s, const char *bytes, size_t len);

/* 1 if an event has begun and not ended: an empty line would end it. */
static inline int sse_in_event(const struct sse *s) { return s->position != s->event_start; }

#endif
