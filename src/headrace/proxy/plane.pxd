"""What the connections of one process share: the settings in force, the replicas and models, and
the counters of the segment.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from headrace.core.balancer cimport Balancer, RouteRequest
from headrace.core.fleet cimport process_block
from headrace.core.segment cimport Segment
from headrace.proxy.head cimport head_names
from headrace.proxy.wheel cimport Wheel
from headrace.proxy.wire cimport Buffer


cdef class Model:
    """A served model, as requests need it."""

    cdef readonly int id
    cdef readonly bytes name
    cdef readonly object info  # snapshot.ModelInfo
    cdef readonly bint on_demand  # its requests may wait for a replica to come up


cdef class Plane:
    cdef readonly object loop
    cdef readonly Segment segment
    cdef readonly int index
    cdef process_block *block
    cdef Wheel wheel
    cdef Balancer balancer
    cdef RouteRequest request  # scratch: valid within one callback
    cdef Buffer out  # scratch, likewise: what is to be written
    cdef Buffer body  # scratch, likewise: body bytes without their framing
    cdef readonly object snapshot
    cdef readonly object config
    cdef readonly uint64_t blob_seen
    # replicas and models
    cdef list pools  # slot -> Pool or None
    cdef object upstream_tls  # tls.ClientTls
    cdef dict models  # name -> Model
    cdef dict aliases  # name -> Model that the replica is asked for; None: not known
    cdef Model only_model  # if exactly one is known
    # settings, dense
    cdef int64_t max_body_bytes, max_header_bytes, max_buffered_bytes
    cdef uint64_t connect_ns, first_byte_ns, idle_ns, request_ns, write_ns
    cdef uint64_t client_header_ns, client_body_ns
    cdef uint64_t keepalive_ns, upstream_idle_ns, queue_timeout_ns
    cdef int max_retries, queue_size, policy
    cdef int hold_size
    cdef uint64_t hold_timeout_ns
    cdef int64_t held_bytes  # bodies of requests that wait for a replica to come up
    cdef int64_t max_concurrent_requests
    cdef bint before_first_token, inject_usage, log_requests, needs_prefix, open_access, traces
    cdef uint64_t next_sample_ns  # without a log, one record in a while goes up for the dashboard
    cdef head_names request_id_names, session_names
    cdef uint64_t request_stays  # header ids that the settings keep from replicas
    cdef frozenset keys  # SHA-256 of each gateway key
    cdef frozenset origins
    cdef bint any_origin
    cdef tuple blocked  # paths, normalized
    cdef dict routes  # path -> (kind, endpoint id), of the paths that are not blocked
    cdef bytes proto_line
    cdef readonly bint stopping  # no new requests
    cdef readonly bint leaving  # connections end with their next answer
    cdef uint64_t id_high, id_count
    cdef readonly object waiting_room
    cdef readonly set clients  # of Downstream
    cdef set watched  # of Downstream: their reading is paused
    cdef uint64_t watched_ns
    cdef dict held_bodies  # of Downstream, in order of arrival: no room for their bodies
    cdef readonly int max_clients
    cdef public object accepting  # called with whether there is room for another client

    cdef bytes new_request_id(self)
    cdef uint64_t random(self) noexcept
    cdef bint allows(self, bytes key)
    cdef bint is_full(self) noexcept
    cdef void count(self, int kind, int a, int b, int c, int d) noexcept
    cdef uint64_t deadline(self, uint64_t now_ns, uint64_t after_ns) noexcept
