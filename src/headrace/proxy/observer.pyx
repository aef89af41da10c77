from headrace.core.sse cimport *
from headrace.proxy.head cimport memmem
from headrace.proxy.wire cimport Buffer


cdef enum:
    MAX_PARTIAL_BYTES = 65536  # an event of this size is no usage


cdef class Observer:
    cdef void start(self, bint events, bint opaque, bint failed):
        self.failed = failed
        self.events, self.opaque = events and not opaque, opaque
        self.content = self.error = self.overloaded = False
        self.going_away = self.finished = self.aborted = False
        self.prompt_tokens = self.completion_tokens = self.cached_tokens = -1
        if self.partial is not None:
            self.partial.size = 0
        if self.events:
            sse_init(&self.w.stream)
        else:
            answer_init(&self.w.plain)

    cdef int feed(self, const char *data, size_t size) noexcept:
        cdef unsigned long long before
        if self.events:
            before = self.w.stream.content_events
            sse_feed(&self.w.stream, data, size)
            if self.w.stream.seen & SSE_ERROR:
                self.going_away = self.going_away or _says_gone(data, size)
            if self.w.stream.content_events == before:
                return 0
            self.content = True
            return <int>(self.w.stream.content_events - before)
        self.content = True
        if not self.opaque:
            if self.failed:
                self.going_away = self.going_away or _says_gone(data, size)
            answer_feed(&self.w.plain, data, size)
        return 0

    cdef int feed_without_usage(self, const char *data, size_t size, Buffer kept) except -1:
        cdef unsigned long long before = self.w.stream.content_events
        cdef size_t took
        if self.partial is None:
            self.partial = Buffer()
        while size:
            took = sse_step(&self.w.stream, data, size)
            self.partial.add(data, took)
            if self.w.stream.last_end == self.w.stream.position and self.partial.size:
                if not self.w.stream.last_class & SSE_USAGE_ONLY:
                    kept.add(self.partial.data, self.partial.size)
                self.partial.size = 0
            elif self.partial.size > MAX_PARTIAL_BYTES:
                kept.add(self.partial.data, self.partial.size)
                self.partial.size = 0
            data += took
            size -= took
        if self.w.stream.seen & SSE_ERROR and kept.size:
            self.going_away = self.going_away or _says_gone(kept.data, kept.size)
        self.content = self.w.stream.content_events > 0
        return <int>(self.w.stream.content_events - before)

    cdef int give_partial(self, Buffer kept) except -1:
        if self.partial is not None:
            kept.add(self.partial.data, self.partial.size)
            self.partial.size = 0
        return 0

    cdef bint has_begun(self) noexcept:
        return self.w.stream.head_end > 0

    cdef bint begins_with_error(self) noexcept:
        return self.w.stream.head_end > 0 and self.w.stream.head_class & SSE_ERROR

    cdef void end(self) noexcept:
        cdef answer *a = &self.w.stream.answer if self.events else &self.w.plain
        self.prompt_tokens = a.usage.prompt_tokens
        self.completion_tokens = a.usage.completion_tokens
        self.cached_tokens = a.usage.cached_tokens
        self.aborted = a.aborted
        if self.events:
            self.error = self.w.stream.seen & SSE_ERROR
            self.overloaded = self.w.stream.refused
            self.finished = self.w.stream.seen & SSE_END or a.finishes > 0
        else:
            self.error = answer_is_error(a)
            self.overloaded = answer_is_refusal(a)
            self.finished = True

    cdef bint is_between_events(self) noexcept:
        return not sse_in_event(&self.w.stream)


cdef bint _says_gone(const char *text, size_t size) noexcept:
    """How vLLM words it when its engine is dead or takes no new requests (DESIGN section 8)."""
    return (memmem(text, size, b"after shutdown", 14) != NULL
            or memmem(text, size, b"EngineCore", 10) != NULL)
