"""The observer of answers: csrc/sse.h for event streams, csrc/answer.h for plain JSON."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "answer.h" nogil:
    struct answer_usage:
        int64_t prompt_tokens, completion_tokens, cached_tokens

    struct answer:
        answer_usage usage
        uint32_t finishes
        unsigned char aborted
        unsigned char content, has_choices, has_choice, has_usage, error, kind
        unsigned char going_away, error_text_bytes
        int32_t error_code
        char *error_text

    void answer_init(answer *a)
    void answer_begin(answer *a)
    void answer_feed(answer *a, const char *data, size_t len)
    bint answer_is_error(const answer *a)
    bint answer_is_refusal(const answer *a)


cdef extern from "sse.h" nogil:
    enum sse_class:
        SSE_COMMENT
        SSE_PREAMBLE
        SSE_CONTENT
        SSE_USAGE_ONLY
        SSE_ERROR
        SSE_END

    struct sse:
        uint64_t position, event_start
        uint64_t events, content_events
        uint64_t last_start, last_end
        uint64_t head_end
        uint64_t usage_start, usage_end
        unsigned char seen, last_class, head_class, refused, going_away
        unsigned char error_text_bytes
        int32_t error_code
        char *error_text
        answer answer

    void sse_init(sse *s)
    size_t sse_step(sse *s, const char *data, size_t len)
    uint64_t sse_feed(sse *s, const char *data, size_t len)
    bint sse_in_event(const sse *s)


cdef class EventStream:
    cdef sse s


cdef class PlainAnswer:
    cdef answer a
