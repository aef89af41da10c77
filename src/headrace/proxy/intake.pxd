"""What a whole request is about: its model and all that routing may know. Refuses what cannot be
served.
"""

from headrace.proxy.exchange cimport Exchange


# 0: understood, x.plane.request is filled; 1: it has been answered
cdef int understand(Exchange x) except -1
# Fills x.plane.request again for a second try; the body is as it was understood.
cdef int recall(Exchange x) except -1
