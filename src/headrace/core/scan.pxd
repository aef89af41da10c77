"""The request-body scanner of csrc/scan.h and the object that carries its result."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "json.h" nogil:
    enum json_kind:
        JSON_ABSENT
        JSON_NULL
        JSON_FALSE
        JSON_TRUE
        JSON_NUMBER
        JSON_STRING
        JSON_ARRAY
        JSON_OBJECT


cdef extern from "text.h" nogil:
    struct text_counts:
        uint32_t letters, words
        uint32_t digits
        uint32_t spaces, space_runs
        uint32_t marks, mark_runs
        uint32_t latin, cjk, other


cdef extern from "scan.h" nogil:
    enum scan_id:
        SCAN_MODEL
        SCAN_STREAM
        SCAN_STREAM_OPTIONS
        SCAN_INCLUDE_USAGE
        SCAN_N
        SCAN_MAX_TOKENS
        SCAN_MAX_COMPLETION_TOKENS
        SCAN_MAX_OUTPUT_TOKENS
        SCAN_PRIORITY
        SCAN_SESSION_ID
        SCAN_USER
        SCAN_CACHE_SALT
        SCAN_LORA
        SCAN_INSTRUCTIONS
        SCAN_SYSTEM
        SCAN_TOOLS
        SCAN_FUNCTIONS
        SCAN_MESSAGES
        SCAN_PROMPT
        SCAN_INPUT
        SCAN_TEXT
        SCAN_INPUT_IDS
        SCAN_QUERY
        SCAN_QUERIES
        SCAN_DOCUMENTS
        SCAN_TEXT_1
        SCAN_TEXT_2
        SCAN_ITEMS
        SCAN_FIELDS

    struct scan_field:
        size_t start, end
        unsigned char kind
        unsigned char escaped

    struct scan:
        scan_field field[SCAN_FIELDS]
        size_t object_start, object_end
        uint32_t messages, prompts, images, audios, videos, token_ids
        text_counts counts
        int64_t n, max_tokens, priority

    enum:
        SCAN_BLOCK_BYTES
        SCAN_MAX_BLOCKS

    int scan_body(const char *body, size_t len, scan *out)
    ptrdiff_t scan_decode(const char *body, const scan_field *field, char *out, size_t cap)
    size_t scan_prefix(
        const char *body, size_t len, const scan *s, uint64_t *keys, size_t max_keys)
    uint64_t scan_root(
        const char *model, size_t model_len, const char *lora, size_t lora_len,
        const char *salt, size_t salt_len)


cdef class BodyScan:
    cdef readonly bytes body
    cdef const char *data  # of body
    cdef size_t size
    cdef scan s

    # The decoded text of a string field; None if it is absent, no string or cannot be decoded.
    cdef bytes decoded(self, int field)
    # Fills keys with at most max_keys prefix keys (without the root); returns how many.
    cdef size_t prefix(self, uint64_t *keys, size_t max_keys) noexcept nogil
