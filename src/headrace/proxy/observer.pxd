"""What a replica's answer says while it passes: first token, usage, errors, its end. It looks on
and changes nothing.
"""

from libc.stdint cimport int64_t

from headrace.core.sse cimport answer, sse
from headrace.proxy.wire cimport Buffer


cdef union watched:
    sse stream
    answer plain


cdef class Observer:
    cdef watched w
    cdef bint events  # an event stream that can be read; else a plain body
    cdef bint opaque  # encoded: it says nothing
    cdef bint failed  # its status is an error
    cdef bint content  # a content event has passed, or a byte of a plain body
    cdef bint error  # an error event, or a body that is one
    cdef bint overloaded  # … for load
    cdef bint going_away  # … of an engine that shuts down
    cdef bint finished  # a finish reason or the dialect's end mark
    cdef bint aborted  # a finish reason that no client asked for
    cdef Buffer partial  # of an event, while usage is taken out
    cdef int64_t prompt_tokens, completion_tokens, cached_tokens  # -1: unknown

    cdef void start(self, bint events, bint opaque, bint failed)
    # How many content events ended in these bytes.
    cdef int feed(self, const char *data, size_t size) noexcept
    # The same; into `kept` go the events that are not usage alone, each when it is complete.
    cdef int feed_without_usage(self, const char *data, size_t size, Buffer kept) except -1
    # The body is over: what is left of an event that was not completed goes into `kept`.
    cdef int give_partial(self, Buffer kept) except -1
    # Of a stream: its first event that is no comment and no preamble is complete; and whether it is
    # an error.
    cdef bint has_begun(self) noexcept
    cdef bint begins_with_error(self) noexcept
    # The body is over, wherever it ended.
    cdef void end(self) noexcept
    cdef bint is_between_events(self) noexcept
