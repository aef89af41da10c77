"""One request's life, from its head to its end, as an explicit machine with one terminal function.

  IDLE -> READING (body) -> [QUEUED] -> [CONNECTING -> ] WAITING (for a head) -> RELAYING -> IDLE
                                ^ [BACKOFF] <- could not connect, or a stale connection
 Whoever ends a request calls `_end`: there the lease has ended, metrics are written, and the
connection goes on or closes.
"""

from libc.stdint cimport int64_t, uint16_t, uint64_t

from headrace.core.balancer cimport Lease, RouteRequest
from headrace.proxy.head cimport framing, request_head, response_head
from headrace.proxy.observer cimport Observer
from headrace.proxy.wire cimport Buffer
from headrace.proxy.plane cimport Model, Plane

cdef class Exchange

from headrace.proxy.downstream cimport Downstream
from headrace.proxy.upstream cimport Upstream


cdef enum ExchangeState:
    X_IDLE
    X_READING
    X_QUEUED
    X_BACKOFF
    X_CONNECTING
    X_WAITING
    X_RELAYING


cdef enum RelayMode:
    RELAY_RAW  # as it came
    RELAY_DECHUNK  # for an HTTP/1.0 client
    RELAY_ENCHUNK  # of a replica that ends its answer by closing
    RELAY_WITHOUT_USAGE  # the usage event that we asked for is taken out: chunked anew


cdef class Exchange:
    cdef Plane plane
    cdef Downstream down
    cdef Upstream up
    cdef Lease lease
    cdef Observer seen
    cdef readonly int state
    # the request
    cdef bytes head
    cdef request_head r
    cdef bytes body
    cdef bytes request_id
    cdef bytes trace_line  # for the replica; empty without tracing
    cdef bytes trace_text  # for the record; empty if not sampled
    cdef uint64_t trace_stays  # ids of the client's headers that trace_line stands for
    cdef Model model  # None: not known (yet)
    cdef RouteRequest waiting_request  # of a request in the waiting room
    cdef bint is_held  # there it waits for a replica to come up, not for room on one
    cdef int endpoint
    cdef bint routed  # counts as a request in the gateway
    cdef bint stream, is_head
    cdef bint resent  # over a fresh connection, because a pooled one was stale
    cdef bint strips_usage
    cdef int64_t max_tokens
    cdef int retries
    cdef uint16_t tried[8]
    cdef Lease spare  # for the next try
    cdef readonly int64_t kept_bytes  # of the body, in the process's account
    # times
    cdef uint64_t began_ns, read_ns, sent_ns, queued_ns, queue_wait_ns, byte_ns, blocked_ns
    # the response
    cdef int status  # 0: no head yet
    cdef framing f
    cdef int mode
    cdef uint64_t flags  # head_flag of the response
    cdef bint reusable, closes
    cdef uint64_t bytes_in, bytes_out
    cdef bint holds  # before_first_token: the client gets nothing before the first content
    cdef bytes held

    # called by the client's connection
    cdef int begin(self, bytes head, uint64_t now_ns) except -1
    cdef int on_request(self, bytes body, uint64_t now_ns) except -1
    cdef int on_client_gone(self) except -1
    cdef int on_due(self, uint64_t now_ns) except -1
    cdef int on_write_blocked(self, bint blocked) except -1
    # called by the replica's connection
    cdef int on_connected(self, Upstream up) except -1
    cdef int on_head(self, bytes data, size_t size, response_head *a) except -1
    cdef int on_body(self, bytes data, size_t at) except -1
    cdef int on_body_eof(self) except -1
    cdef int on_broken(self, int failure) except -1
    # called by the waiting room
    cdef int dispatch(self, uint64_t now_ns) except -1
    # own
    cdef int _attempt(self, uint64_t now_ns) except -1
    cdef int _send(self, Upstream up, uint64_t now_ns) except -1
    cdef int _fail(self, int failure, uint64_t now_ns) except -1
    cdef int _cut(self, int outcome, uint64_t now_ns) except -1
    cdef int _complete(self, bint surplus, uint64_t now_ns) except -1
    cdef int _relay(self, bytes data, size_t at, uint64_t now_ns) except -1
    cdef int _pass_on(self, bytes data, size_t start, size_t at) except -1
    cdef bint _hold(self, bytes data, size_t start, size_t at, uint64_t now_ns) except -1
    cdef int _write_stalled(self, uint64_t now_ns) except -1
    cdef bytes _read_id(self)
    cdef void _set_deadline(self, uint64_t now_ns)
    cdef int _add_own_lines(self, Buffer out) except -1
    cdef bytes text(self, uint64_t at, uint64_t size)
    cdef int _end(self, int outcome, int status, uint64_t now_ns) except -1
    cdef void _drop_body(self)
    cdef void _let_go(self)
