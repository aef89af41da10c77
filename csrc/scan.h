/* The request-body scanner: one strict pass over the JSON bytes records what routing needs, a
 * second one hashes the prompt into prefix blocks (DESIGN section 4). Sans-IO, no allocation, all
 * results are offsets and numbers.
 *
 * Top-level fields: the last of equal keys wins, a key written with escapes counts as what it
 * stands for. */
#ifndef HEADRACE_SCAN_H
#define HEADRACE_SCAN_H

#include "json.h"

/* Fields of the top-level object, except SCAN_INCLUDE_USAGE, which stands in stream_options. From
 * SCAN_INSTRUCTIONS on they carry the prompt, in the order in which it is hashed. */
enum scan_id {
    SCAN_MODEL,
    SCAN_STREAM,
    SCAN_STREAM_OPTIONS,
    SCAN_INCLUDE_USAGE,
    SCAN_N,
    SCAN_MAX_TOKENS,
    SCAN_MAX_COMPLETION_TOKENS,
    SCAN_MAX_OUTPUT_TOKENS,
    SCAN_PRIORITY,
    SCAN_SESSION_ID,
    SCAN_USER,
    SCAN_CACHE_SALT,
    SCAN_LORA,
    SCAN_INSTRUCTIONS,
    SCAN_SYSTEM,
    SCAN_TOOLS,
    SCAN_FUNCTIONS,
    SCAN_MESSAGES,
    SCAN_PROMPT,
    SCAN_INPUT,
    SCAN_TEXT,
    SCAN_INPUT_IDS,
    SCAN_QUERY,
    SCAN_QUERIES,
    SCAN_DOCUMENTS,
    SCAN_TEXT_1,
    SCAN_TEXT_2,
    SCAN_ITEMS,
    SCAN_FIELDS,
};

/* A value: bytes [start, end) of the body, quotes and brackets included; kind is JSON_ABSENT if the
 * key is missing. escaped: a string that has to be decoded; in prompt fields every string, so that
 * long ones are not looked through. */
struct scan_field {
    size_t start, end;
    unsigned char kind;
    unsigned char escaped;
};

/* Filled by scan_body, valid while the body's bytes are.
 * object_start, object_end: offset after the outer '{' and of the outer '}' (where a member may be
 * added). messages, prompts: turns of a chat or items of an input; sequences of a batch, at
 * least 1. images, audios, videos: parts of that kind; their URLs and data are no text. token_ids:
 * numbers in prompt arrays. counts: the prompt's decoded text, tools and roles included. n,
 * max_tokens, priority: the request's values; -1, -1, 0 when absent or no integers; of several
 * limits the one that vLLM would take (max_completion_tokens before max_tokens). */
struct scan {
    struct scan_field field[SCAN_FIELDS];
    size_t object_start, object_end;
    uint32_t messages, prompts, images, audios, videos, token_ids;
    struct text_counts counts;
    int64_t n, max_tokens, priority;
};
_Static_assert(sizeof(struct scan) <= 1024, "a scan is small enough to live in every request");

/* 0 and *out filled; -1 if the body is no JSON object by RFC 8259 in valid UTF-8, or more than
 * JSON_MAX_DEPTH deep. */
int scan_body(const char *body, size_t len, struct scan *out);

/* Decodes a string field into out: its length in bytes, or -1 if it is no string, has a lone
 * surrogate or more than cap bytes. */
ptrdiff_t scan_decode(const char *body, const struct scan_field *field, char *out, size_t cap);

#define SCAN_BLOCK_BYTES 256
#define SCAN_MAX_BLOCKS 512

/* Chained hashes of the prompt's full blocks: keys[i] proves everything up to block i. At most
 * max_keys and never more than SCAN_MAX_BLOCKS; returns how many. Equal for equal prompts however
 * they are escaped or cut into parts; a prompt that only grows at its end keeps its keys. Neither
 * model nor salt is in them: mix each with scan_root by hash_mix. */
size_t scan_prefix(const char *body, size_t len, const struct scan *s, uint64_t *keys,
                   size_t max_keys);

/* What separates equal prompts: the model (after aliasing), LoRA name and cache salt, decoded; NULL
 * when absent. */
uint64_t scan_root(const char *model, size_t model_len, const char *lora, size_t lora_len,
                   const char *salt, size_t salt_len);

#endif
