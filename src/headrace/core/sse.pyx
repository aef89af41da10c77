from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

CLASSES = {
    "comment": SSE_COMMENT,
    "preamble": SSE_PREAMBLE,
    "content": SSE_CONTENT,
    "usage_only": SSE_USAGE_ONLY,
    "error": SSE_ERROR,
    "end": SSE_END,
}


cdef set class_names(unsigned char bits):
    return {name for name, bit in CLASSES.items() if bits & bit}


cdef dict usage_of(const answer *a):
    return {
        "prompt_tokens": a.usage.prompt_tokens,
        "completion_tokens": a.usage.completion_tokens,
        "cached_tokens": a.usage.cached_tokens,
    }


cdef class EventStream:
    def __cinit__(self):
        sse_init(&self.s)

    def feed(self, bytes data not None):
        return sse_feed(&self.s, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))

    def step(self, bytes data not None):
        return sse_step(&self.s, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))

    @property
    def in_event(self):
        return sse_in_event(&self.s)

    @property
    def position(self):
        return self.s.position

    @property
    def events(self):
        return self.s.events

    @property
    def content_events(self):
        return self.s.content_events

    @property
    def seen(self):
        return class_names(self.s.seen)

    @property
    def last(self):
        return self.s.last_start, self.s.last_end, class_names(self.s.last_class)

    @property
    def head(self):
        return self.s.head_end, class_names(self.s.head_class)

    @property
    def usage_span(self):
        return self.s.usage_start, self.s.usage_end

    @property
    def error(self):
        return (
            self.s.error_code, self.s.error_text[:self.s.error_text_bytes], bool(self.s.refused))

    @property
    def going_away(self):
        return bool(self.s.going_away)

    @property
    def finishes(self):
        return self.s.answer.finishes

    @property
    def aborted(self):
        return bool(self.s.answer.aborted)

    @property
    def usage(self):
        return usage_of(&self.s.answer)


cdef class PlainAnswer:
    def __cinit__(self):
        answer_init(&self.a)

    def feed(self, bytes data not None):
        answer_feed(&self.a, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))

    @property
    def is_error(self):
        return answer_is_error(&self.a)

    @property
    def error(self):
        return (
            self.a.error_code, self.a.error_text[:self.a.error_text_bytes],
            answer_is_refusal(&self.a))

    @property
    def going_away(self):
        return bool(self.a.going_away)

    @property
    def finishes(self):
        return self.a.finishes

    @property
    def aborted(self):
        return bool(self.a.aborted)

    @property
    def usage(self):
        return usage_of(&self.a)
