/* What the parts of a prompt are, by key: shared by the pass that counts and the pass that hashes.
 */
#ifndef HEADRACE_PROMPT_H
#define HEADRACE_PROMPT_H

#include "json.h"

/* Containers of a prompt are followed this deep (tool results nest parts in parts); what lies
 * deeper is no text. */
#define PROMPT_MAX_DEPTH 8

enum prompt_use {
    PROMPT_NONE,
    PROMPT_ROLE,  /* who speaks */
    PROMPT_TEXT,  /* a string, or parts, or strings in parts */
    PROMPT_JSON,  /* reaches the template as JSON text: tools, calls */
    PROMPT_IMAGE, /* media: a URL or data, never text */
    PROMPT_AUDIO,
    PROMPT_VIDEO,
    PROMPT_TURNS, /* top-level only: objects in it are messages */
    PROMPT_BATCH, /* top-level only: each string or array in it is a sequence */
};

/* Keys of a message, an item or a part, in the order in which they are hashed. */
#define PROMPT_KEYS 24
extern const struct json_name prompt_keys[PROMPT_KEYS];
extern const unsigned char prompt_key_uses[PROMPT_KEYS];

/* How a field from SCAN_INSTRUCTIONS on carries the prompt. */
enum prompt_use prompt_field_use(int scan_id);

#endif
