from libc.stdint cimport int64_t

from headrace.core.sse cimport *
from headrace.proxy.head cimport memmem


cdef class Observer:
    cdef void start(self, bint events, bint opaque, bint failed):
        self.failed = failed
        self.events, self.opaque = events and not opaque, opaque
        self.content = self.error = self.overloaded = self.going_away = self.finished = self.aborted = False
        self.prompt_tokens = self.completion_tokens = self.cached_tokens = -1
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
                self.going_away = self.going_away or _says_shutdown(data, size)
            if self.w.stream.content_events == before:
                return 0
            self.content = True
            return <int>(self.w.stream.content_events - before)
        self.content = True
        if not self.opaque:
            if self.failed:
                self.going_away = self.going_away or _says_shutdown(data, size)
            answer_feed(&self.w.plain, data, size)
        return 0

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


cdef bint _says_shutdown(const char *text, size_t size) noexcept:
    """How vLLM words it when it takes no new requests while /health is still well (DESIGN section 8)."""
    return memmem(text, size, b"after shutdown", 14) != NULL
