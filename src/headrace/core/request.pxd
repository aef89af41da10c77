"""What a policy may know of a request, and how it is read from a body and headers."""

from libc.stdint cimport int64_t, uint16_t, uint64_t

from headrace.core.scan cimport BodyScan, scan_field


cdef enum RequestKind:
    KIND_GENERATE = 0
    KIND_EMBED = 1  # no output tokens: the finish is the first token


cdef class RouteRequest:
    cdef public int model  # model id, see Balancer.set_model
    cdef public int kind
    cdef public bint stream
    cdef public int priority  # 0 system, 1 interactive, 2 default, 3 bulk
    cdef public int sequences  # n × batch
    cdef public int64_t max_tokens  # 0: not given
    cdef public double prompt_tokens  # estimate, of all sequences
    cdef public double features[12]  # of the estimate, for its calibration
    cdef bint estimated  # prompt_tokens comes from features: routing brings it up to date
    cdef public bint has_session
    cdef public uint64_t session  # hash of the session key
    cdef int session_rank
    cdef int prefix_count
    cdef uint64_t prefix[512]  # block keys, chained, already mixed with their root
    cdef int excluded_count
    cdef uint16_t excluded[8]  # slots not to be picked (tried already)

    cdef void clear(self) noexcept
    # A session key from the place `rank` of the order: a session header's index in
    # routing.session_headers; the body's keys (offered by fill) come last. The first in the order
    # wins, whatever the order of the calls; empty keys are none.
    cdef void offer_session(self, int rank, const char *key, size_t size) noexcept
    # All that a body says; `model` is its name after aliasing. Call clear() first, and
    # offer_session for the headers.
    cdef int fill(self, BodyScan scan, bytes model, int kind) except -1
    cdef int _offer_field(self, BodyScan scan, int field, int rank) except -1
    cdef void _count(self, BodyScan scan) noexcept
