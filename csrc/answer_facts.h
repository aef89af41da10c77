/* What the keys and values of an answer mean; the tokenizer of answer.c calls it. */
#ifndef HEADRACE_ANSWER_FACTS_H
#define HEADRACE_ANSWER_FACTS_H

#include "answer.h"

/* Where the tokenizer stands; only LIST is an array. */
enum context { TOP, LIST, CHOICE, DELTA, EVENT_DELTA, INNER, USAGE, DETAILS, ERROR, IGNORED };

enum key {
    NO_KEY,
    KEY_TYPE,
    KEY_TEXT,
    KEY_CODE,
    KEY_USAGE,
    KEY_ERROR,
    KEY_DELTA,
    KEY_STATUS,
    KEY_OBJECT,
    KEY_CHOICES,
    KEY_MESSAGE,
    KEY_RESPONSE,
    KEY_META_INFO,
    KEY_STOP_REASON,
    KEY_FINISH_REASON,
    KEY_PROMPT,
    KEY_COMPLETION,
    KEY_CACHED,
    KEY_DETAILS,
};

enum key answer_key_of(const char *name, size_t len);

/* 1 if the value of the current key may matter. */
static inline int answer_is_read(const struct answer *a)
{
    return a->key != NO_KEY || a->contexts[a->depth - 1] == DELTA;
}

/* 1 if the string that is the current key's value has to be in the token for answer_value. */
int answer_wants_string(const struct answer *a);

/* The current key's value, in the token: a string (if wanted) or a scalar that is not null. */
void answer_value(struct answer *a, int is_string);

/* The context of the container that starts as the value of the current key. */
enum context answer_enter(struct answer *a, int is_array);

#endif
