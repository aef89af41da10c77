"""What the data plane, the library and the simulator call: one process's hands on the segment.
A RouteRequest says what a policy may know of a request. `Balancer.route` picks a replica and opens
a Lease on it. No clock, socket or logger: time comes in as now_ns (monotonic).
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from headrace.core.books cimport Books, served
from headrace.core.lb cimport admitted, lb_ops, lb_pool, lb_request, prefix_match, rng
from headrace.core.lease cimport Lease
from headrace.core.request cimport KIND_EMBED, KIND_GENERATE, RequestKind, RouteRequest


cpdef enum Verdict:
    ROUTED = 0
    NO_REPLICA = 1  # known model, nobody can serve it
    OVERLOADED = 2  # every eligible replica is above its limit
    GATEWAY_FULL = 3  # admission.max_concurrent_requests
    RETRY_DENIED = 4  # the budget is empty, or retry.max_retries is reached


cdef class Balancer:
    cdef readonly Books books
    cdef readonly object settings
    cdef readonly int policy  # index into POLICIES
    cdef const lb_ops *ops
    cdef prefix_match *match
    cdef admitted *room  # candidates of the last request
    cdef double *turns  # scratch, by place among them
    cdef double *score
    cdef rng chance
    cdef double overload_ratio, load_factor, budget_ratio, min_per_s, backoff_s, jitter
    cdef int max_retries, gateways
    cdef int64_t max_concurrent_requests

    cdef int route(self, RouteRequest request, Lease lease, uint64_t now_ns)
    # Fails a lease and opens one elsewhere, within the budget; lease.start_at_ns says when to
    # begin.
    cdef int retry(self, RouteRequest request, Lease failed, Lease lease, int failure,
                   uint64_t now_ns)
    cdef double retry_after_s(self, int model, uint64_t now_ns)
    # What time alone brings about (plain requests reach their predicted prefill end); route calls
    # it, an idle process may.
    cdef void tick(self, uint64_t now_ns) noexcept

    # The steps of a decision, for whoever explains one: candidates into room (and, unless NULL, why
    # not into why, by place); the verdict if there are none; what the policy is to see.
    cdef int admit(self, served *m, RouteRequest request, uint8_t *why) noexcept
    cdef int refusal(self) noexcept
    cdef int prepare(self, served *m, RouteRequest request, lb_request *q,
                     lb_pool *pool) except -1
    cdef int _choose(self, RouteRequest request, Lease lease, uint64_t now_ns, bint again) except -1
    cdef void _open(self, RouteRequest request, Lease lease, served *m, int place, double hit,
                    uint64_t now_ns) noexcept
