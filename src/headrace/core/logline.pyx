from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memset

from headrace.core.fleet cimport fleet_ring, ring, ring_pop
from headrace.core.segment cimport Segment

cdef enum:
    BATCH_BYTES = 1 << 18  # stays in a core's own cache


cdef class LogLines:
    def __cinit__(self, bytes policy not None, *, list endpoints not None,
                  list outcomes not None, list reasons not None, list models not None,
                  list replicas not None):
        memset(&self.line, 0, sizeof(self.line))
        self.out = NULL
        self.kept = []
        self.line.policy = self._value(policy)
        self._take_names(&self.line.endpoints, endpoints, b'"other"')
        self._take_names(&self.line.outcomes, outcomes, b'"other"')
        self._take_names(&self.line.reasons, reasons, b'"other"')
        self._take_names(&self.line.models, models, b'"other"')
        self._take_names(&self.line.replicas, replicas, b"null")
        logline_prepare(&self.line)
        self.room = BATCH_BYTES + self.line.line_bytes
        self.out = <char *>PyMem_Malloc(self.room)
        if self.out is NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.out)
        PyMem_Free(<void *>self.line.endpoints.values)
        PyMem_Free(<void *>self.line.outcomes.values)
        PyMem_Free(<void *>self.line.reasons.values)
        PyMem_Free(<void *>self.line.models.values)
        PyMem_Free(<void *>self.line.replicas.values)

    cdef logline_value _value(self, bytes text):
        cdef logline_value value
        self.kept.append(text)
        value.start = PyBytes_AS_STRING(text)
        value.len = <uint32_t>PyBytes_GET_SIZE(text)
        return value

    cdef int _take_names(self, logline_names *names, list texts, bytes other) except -1:
        cdef uint32_t count = <uint32_t>len(texts)
        cdef uint32_t i
        cdef logline_value *values = <logline_value *>PyMem_Malloc(count * sizeof(logline_value))
        if values is NULL:
            raise MemoryError
        names.values = values
        for i in range(count):
            values[i] = self._value(<bytes?>texts[i])
        names.count = count
        names.other = self._value(other)
        return 0

    def take(self, Segment segment not None, int process):
        cdef char record[ACCESS_BYTES]
        cdef ring *r
        cdef uint32_t kind = 0
        cdef int popped
        cdef size_t used = 0
        if not 0 <= process < segment.processes:
            raise IndexError(f"process: wanted {process}, have 0 to {segment.processes - 1}")
        r = fleet_ring(segment.base, process)
        while self.room - used >= self.line.line_bytes:
            popped = ring_pop(r, &kind, record, sizeof(record))
            if popped == -1:
                break
            if popped >= 0 and kind == RECORD_ACCESS:
                used += logline_write(&self.line, record, popped, self.out + used,
                                      self.room - used)
        return PyBytes_FromStringAndSize(self.out, used)
