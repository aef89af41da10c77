"""Heads and body framing as C sees them (csrc/head.h, csrc/framing.h): declarations only."""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t

cdef extern from "head.h" nogil:
    enum header:
        HEADER_AUTHORIZATION
        HEADER_CONNECTION
        HEADER_CONTENT_LENGTH
        HEADER_DP_RANK
        HEADER_EXPECT
        HEADER_FORWARDED_FOR
        HEADER_FORWARDED_PROTO
        HEADER_HOST
        HEADER_REPLICA
        HEADER_REQUEST_ID
        HEADER_TRACEPARENT
        HEADER_TRACESTATE
        HEADER_TRAILER
        HEADER_X_API_KEY
    uint64_t HEADERS_HOP_BY_HOP
    uint64_t HEADER_BIT(int id)
    struct head_span:
        uint32_t at, len
    struct head_names:
        uint32_t count
    enum:
        HEAD_CHUNKED
        HEAD_CLOSE
        HEAD_KEEP_ALIVE
        HEAD_UPGRADE
        HEAD_NOMINATES
        HEAD_CONTINUE
        HEAD_DEBUG
        HEAD_EVENTS
        HEAD_JSON
        HEAD_MULTIPART
        HEAD_ENCODED
        HEAD_EXPECTS
    struct request_head:
        head_span method, target
        head_span authorization, api_key, origin, preflight_method, preflight_headers, content_type
        head_span request_id, session, traceparent
        int64_t content_length
        uint64_t ids
        uint32_t flags, lines
        int32_t priority
        unsigned char minor, keys, traceparents
    struct response_head:
        head_span content_type, reason
        int64_t content_length
        uint32_t flags
        uint16_t status
        unsigned char minor
    uint64_t head_end(const char *data, uint64_t size)
    int head_read_request(const char *head, uint32_t size, const head_names *ids,
                          const head_names *sessions,
                          request_head *out)
    int head_read_response(const char *head, uint32_t size, response_head *out)
    uint32_t head_copy(const char *head, uint32_t size, uint64_t drop, int nominates, char *out)
    uint32_t head_join(const char *head, uint32_t size, header id, char *out)
    int head_add_name(head_names *names, const char *name, uint32_t len)

cdef extern from "framing.h" nogil:
    enum framing_kind:
        FRAMING_NONE
        FRAMING_LENGTH
        FRAMING_CHUNKED
        FRAMING_CLOSE
    struct framing:
        uint64_t left
        unsigned char kind, state, done, bad
    void framing_start(framing *f, framing_kind kind, uint64_t length)
    size_t framing_next(framing *f, const char *data, size_t size, const char **payload,
                        size_t *len)
    int framing_close(const framing *f, const char **before, uint64_t *newlines, const char **after)

cdef extern from "hex.h" nogil:
    void hex_write(uint64_t value, char *out)

cdef extern from "string.h" nogil:
    void *memmem(const void *haystack, size_t size, const void *needle, size_t n)
