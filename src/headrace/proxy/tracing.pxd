"""The span of a request, W3C Trace Context: made here, told to the replica, sent up in the record;
control exports it. Without observability.otlp_endpoint the client's headers pass as they are.
"""

from headrace.proxy.exchange cimport Exchange


# Gives a request that begins its span: in the client's trace, or in a new one.
cdef int begin(Exchange x) except -1
