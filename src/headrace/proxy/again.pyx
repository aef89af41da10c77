from libc.stdint cimport uint64_t

from headrace.core.balancer cimport ROUTED, Lease, RouteRequest
from headrace.core.fleet cimport *
from headrace.proxy cimport booking, intake
from headrace.proxy.exchange cimport X_BACKOFF, Exchange

cdef enum:
    RETRY_CONNECT = 1  # places in observe.reasons.RETRIED
    RETRY_STALE = 2
    RETRY_EARLY = 3


cdef bint elsewhere(Exchange x, int failure, uint64_t now_ns) except -1:
    cdef RouteRequest q = x.plane.request
    cdef Lease spare = x.spare if x.spare is not None else Lease()
    cdef int reason = RETRY_EARLY
    cdef int i
    if failure == FAILURE_REFUSED or failure == FAILURE_CONNECT_TIME:
        reason = RETRY_CONNECT
    elif failure == FAILURE_STALE:
        reason = RETRY_STALE
    elif not x.plane.before_first_token or failure == FAILURE_TIMEOUT or x.retries:
        return False
    if x.retries >= x.plane.max_retries:
        return False
    intake.recall(x)
    for i in range(x.retries):
        q.excluded[i] = x.tried[i]
    q.excluded_count = x.retries
    x.tried[x.retries] = x.lease.slot
    if x.plane.balancer.retry(q, x.lease, spare, failure, now_ns) != ROUTED:
        return False
    x.lease, x.spare = spare, x.lease
    x.retries += 1
    x.status = 0
    x.holds = False
    x.held = None
    x.plane.count(SERIES_RETRIES, reason, 0, 0, 0)
    x.plane.segment.alarm()
    booking.decided(x)
    if x.lease.start_at_ns <= now_ns:
        x._attempt(now_ns)
    else:
        x.state = X_BACKOFF
        x.plane.wheel.set(x.down, x.lease.start_at_ns)
    return True


cdef bint resend(Exchange x, uint64_t now_ns) except -1:
    """A pooled connection was closed under the request, and there is no other replica or no
    retry allowed.

    That is the pool's mistake, not the replica's failure: once, over a fresh connection,
    wherever routing sends it.
    """
    if x.resent:
        return False
    x.resent = True
    x.lease.end_failed(now_ns, FAILURE_STALE)
    intake.recall(x)
    if x.plane.balancer.route(x.plane.request, x.lease, now_ns) != ROUTED:
        return False
    x.plane.count(SERIES_RETRIES, RETRY_STALE, 0, 0, 0)
    x._attempt(now_ns)
    return True
