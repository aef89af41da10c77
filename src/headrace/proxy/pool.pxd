"""Connections to one replica. Unbounded: what limits requests is admission, not sockets."""

from headrace.proxy.plane cimport Plane

cdef class Pool

from headrace.proxy.upstream cimport Upstream


cdef class Pool:
    cdef Plane plane
    cdef readonly int slot
    cdef readonly object info  # snapshot.ReplicaInfo
    cdef str host
    cdef int port
    cdef object tls  # ssl.SSLContext or None
    cdef bytes host_line  # what follows the target: version and Host
    cdef bytes key_line  # its own Authorization, or empty
    cdef bytes path_prefix  # of its URL
    cdef bytes replica_line  # x-headrace-replica
    cdef list idle  # of Upstream, the last one used comes last
    cdef set open  # of Upstream: all, connecting ones too
    cdef bint closed

    cdef Upstream take(self)
    cdef void give_back(self, Upstream up)
    cdef void forget(self, Upstream up)
