/* Reads what a gateway has to know out of an engine's answer: one JSON document (a plain answer, or
 * the data of one stream event) fed in pieces of any size. Holds no copy of it, only a position and
 * one short token.
 *
 * Not a validator: the bytes pass to the client whatever they are; where they stop making sense it
 * stops looking. */
#ifndef HEADRACE_ANSWER_H
#define HEADRACE_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#define ANSWER_TOKEN_BYTES 64
#define ANSWER_MAX_DEPTH 6

/* -1 is unknown. Anthropic's input_tokens leave cached ones out; vLLM's do not. */
struct answer_usage {
    int64_t prompt_tokens, completion_tokens, cached_tokens;
};

/* What a named event (the document's `type`, or its `event:` line) means. */
enum answer_kind {
    ANSWER_UNNAMED,
    ANSWER_PREAMBLE, /* response.created, response.in_progress, response.queued, message_start, ping
                      */
    ANSWER_CONTENT,  /* deltas, blocks, items and parts */
    ANSWER_OTHER,    /* carries nothing new: content_block_stop, response.*.done */
    ANSWER_END,      /* response.completed, response.incomplete, message_stop */
    ANSWER_FAILED,   /* response.failed */
    ANSWER_ERROR,    /* error */
};

struct answer {
    /* over all documents */
    struct answer_usage usage; /* the last figures */
    uint32_t finishes;         /* choices that ended */
    unsigned char aborted;     /* one of them by "abort" */

    /* of the current document */
    unsigned char content;     /* text, a role, a call, reasoning or a finish */
    unsigned char has_text;    /* `text` outside of choices: content, if the document is unnamed */
    unsigned char has_choices; /* the key */
    unsigned char has_choice;  /* an element */
    unsigned char has_usage;   /* a figure */
    unsigned char error;       /* an error that is not null */
    unsigned char kind;        /* enum answer_kind */
    unsigned char going_away;  /* the error says that the engine shuts down */
    int32_t error_code;        /* a number or a string of digits; 0: none */
    unsigned char error_text_bytes;
    char error_text[ANSWER_TOKEN_BYTES]; /* its code or else type as a string, cut; not safe to
                                            print */

    /* the tokenizer's */
    unsigned char state, escape, escaped, key, depth;
    unsigned char contexts[ANSWER_MAX_DEPTH];
    unsigned char token_bytes;
    uint32_t skip_depth;
    char token[ANSWER_TOKEN_BYTES];
};

void answer_init(struct answer *a);

/* A new document starts; what holds over all documents stays. */
void answer_begin(struct answer *a);

void answer_feed(struct answer *a, const char *bytes, size_t len);

/* Meaning of an event's name. */
enum answer_kind answer_kind_of(const char *name, size_t len);

/* 1 if the current document is an error: a named one, or an error without choices. */
int answer_is_error(const struct answer *a);

/* 1 if that error means load, not sickness: code 503 or 429, or a text that says so. */
int answer_is_refusal(const struct answer *a);

#endif
