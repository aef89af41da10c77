/* Strict JSON (RFC 8259) over a buffer, by hand-driven cursor: no tree, no allocation.
 * What it accepts is what orjson accepts, plus two things the grammar allows and orjson's numbers
 * and strings cannot hold: lone surrogate escapes and numbers beyond a double. */
#ifndef HEADRACE_JSON_H
#define HEADRACE_JSON_H

#include "text.h"

#define JSON_MAX_DEPTH 1024

enum json_kind {
    JSON_ABSENT,
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

/* depth counts the containers that are open at p. */
struct json {
    const unsigned char *p, *end;
    unsigned depth;
};

/* The bytes between the quotes, still escaped. */
struct json_string {
    const unsigned char *start, *end;
    int escaped;
};

void json_space(struct json *j);

/* Kind of the value that starts at p, by its first byte only; JSON_ABSENT if none can start there.
 */
enum json_kind json_peek(const struct json *j);

/* Reads the string at p (which must be a quote) into *out; counts its decoded text into t unless
 * NULL. 0 or -1. */
int json_read_string(struct json *j, struct json_string *out, struct text *t);

/* Passes over one value of any kind. With t, its strings, numbers and punctuation are counted as
 * text. 0 or -1. */
int json_skip(struct json *j, struct text *t);

/* Passes over a value that is known to be valid, which takes only a look at quotes and brackets. */
void json_skip_valid(struct json *j);

/* The first quote or backslash from p on, or end. */
const unsigned char *json_end_of_run(const unsigned char *p, const unsigned char *end);

/* Enters the container at p (which must be a bracket): 1 at its first member, 0 if it is empty and
 * closed again, -1. */
int json_enter(struct json *j);

/* After a member: 1 at the next member, 0 if the container is closed, -1. closer is '}' or ']'. */
int json_next(struct json *j, unsigned char closer);

/* Reads a key and its colon; p is at the value then. 0 or -1. */
int json_read_key(struct json *j, struct json_string *key);

/* Decodes the escape at p (a backslash of a valid string, end after it) into *code_point, pairs
 * joined, lone surrogates as they are; returns what follows, NULL if it is no escape. */
const unsigned char *json_unescape(const unsigned char *p, const unsigned char *end,
                                   uint32_t *code_point);

/* UTF-8 of a code point (a lone surrogate in the same manner) into out[4]; returns its length. */
int json_encode(uint32_t code_point, unsigned char *out);

/* Decodes a valid string into out; its length, or -1 if it has more than cap bytes or a lone
 * surrogate. */
ptrdiff_t json_decode(const struct json_string *s, unsigned char *out, size_t cap);

/* Index of the string in a list of names, -1 if it is none of them. Escapes in it count as what
 * they stand for. */
struct json_name {
    unsigned char len;
    const char *name;
};
#define JSON_NAME(text) {sizeof(text) - 1, text}
int json_find_name(const struct json_string *s, const struct json_name *names, int count);

#endif
