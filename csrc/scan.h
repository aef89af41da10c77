/* The request-body scanner: one strict pass over the JSON bytes records what routing needs, a
 * second one hashes the prompt into prefix blocks (DESIGN section 4). Sans-IO, no allocation, all
 * results are offsets and numbers.
 *
 * Top-level fields: the last of equal keys wins, a key written with escapes counts as what it
 * stands for. */
#ifndef HEADRACE_SCAN_H
#define HEADRACE_SCAN_H

#include "blocks.h"

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

/* Filled by scan_body; the offsets are good while the body's bytes are. */
struct scan {
    struct scan_field field[SCAN_FIELDS];
    size_t object_start, object_end; /* after the outer '{' and of the outer '}' */
    uint32_t messages;               /* turns of a chat or objects in an input */
    uint32_t prompts;                /* sequences of a batch, at least 1 */
    uint32_t images, audios, videos; /* parts; their URLs and data are no text */
    uint32_t token_ids;              /* numbers in prompt arrays */
    struct text_counts counts;       /* of the prompt's decoded text, roles and tools included */
    int64_t n, max_tokens;           /* -1: absent or no integer; the limit that vLLM would take */
    int64_t priority;                /* 0: absent or no integer */
};
_Static_assert(sizeof(struct scan) <= 1024, "a scan is small enough to live in every request");

/* 0 and *out filled; -1 if the body is no JSON object by RFC 8259 in valid UTF-8, or more than
 * JSON_MAX_DEPTH deep. */
int scan_body(const char *body, size_t len, struct scan *out);

/* Decodes a string field into out: its length in bytes, or -1 if it is no string, has a lone
 * surrogate or more than cap bytes. */
ptrdiff_t scan_decode(const char *body, const struct scan_field *field, char *out, size_t cap);

#define SCAN_BLOCK_BYTES BLOCK_BYTES
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
