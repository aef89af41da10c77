from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.math cimport isinf, isnan
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset, strlen

from headrace.core.fleet cimport *
from headrace.core.segment cimport Segment

cdef extern from "Python.h":
    char *PyOS_double_to_string(double value, char code, int precision, int flags, int *type)
    int Py_DTSF_ADD_DOT_0

cdef enum:
    DIGITS = 32  # more than any number takes

cdef double MAX_EXACT = 2.0 ** 53  # up to here whole numbers are written without a point


cdef bytes bucket_label(double bound):
    """The `le` label of a bucket, spelled as OpenMetrics wants floats."""
    return b'le="%s"' % repr(bound).encode()


cdef list LABELS_OF = [[bucket_label(hist_bounds(kind)[i]) for i in range(HIST_BUCKETS - 1)]
                       for kind in range(HIST_KINDS)]


cdef class Family:
    def __cinit__(self, str name not None):
        self.name = name.encode()
        self.data = NULL
        self.size = self.room = 0

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int _need(self, size_t more) except -1:
        cdef char *data
        cdef size_t room
        if self.size + more <= self.room:
            return 0
        room = 2 * self.room + more + 1024
        data = <char *>PyMem_Realloc(self.data, room)
        if data == NULL:
            raise MemoryError
        self.data, self.room = data, room
        return 0

    cdef void _put(self, const char *data, size_t size) noexcept:
        memcpy(self.data + self.size, data, size)
        self.size += size

    cdef void _put_count(self, uint64_t value) noexcept:
        cdef char digits[DIGITS]
        cdef int at = DIGITS
        while True:
            at -= 1
            digits[at] = 48 + value % 10
            value //= 10
            if value == 0:
                break
        self._put(digits + at, DIGITS - at)

    cdef int _begin(self, const char *suffix, size_t suffix_size, bytes labels) except -1:
        """The series of a sample: name{labels} and a blank; the value needs no more room."""
        self._need(PyBytes_GET_SIZE(self.name) + suffix_size + PyBytes_GET_SIZE(labels) + DIGITS
                   + 8)
        self._put(PyBytes_AS_STRING(self.name), PyBytes_GET_SIZE(self.name))
        self._put(suffix, suffix_size)
        if PyBytes_GET_SIZE(labels):
            self._put(b"{", 1)
            self._put(PyBytes_AS_STRING(labels), PyBytes_GET_SIZE(labels))
            self._put(b"}", 1)
        self._put(b" ", 1)
        return 0

    cdef int _end_count(self, uint64_t value) except -1:
        self._put_count(value)
        self._put(b"\n", 1)
        return 0

    cdef int _end_float(self, double value) except -1:
        cdef char *text
        if isinf(value):
            self._put(b"+Inf" if value > 0 else b"-Inf", 4)
        elif 0 <= value < MAX_EXACT and value == <double><uint64_t>value:
            self._put_count(<uint64_t>value)
        else:
            text = PyOS_double_to_string(value, c"r", 0, Py_DTSF_ADD_DOT_0, NULL)
            if text == NULL:
                raise MemoryError
            self._put(text, strlen(text))
            PyMem_Free(text)
        self._put(b"\n", 1)
        return 0

    cdef int add_count(self, bytes labels, uint64_t value) except -1:
        self._begin(b"", 0, labels)
        return self._end_count(value)

    cdef int add_buckets(self, bytes labels, const uint64_t *buckets, list bounds,
                         double total) except -1:
        """bounds: the `le` labels of all buckets but the last."""
        cdef bytes name = self.name
        cdef bytes le
        cdef uint64_t count = 0
        cdef Py_ssize_t i
        cdef Py_ssize_t n = len(bounds)
        for i in range(n + 1):
            count += buckets[i]
            le = <bytes>bounds[i] if i < n else b'le="+Inf"'
            self._need(PyBytes_GET_SIZE(name) + PyBytes_GET_SIZE(labels) + PyBytes_GET_SIZE(le)
                       + DIGITS + 16)
            self._put(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            self._put(b"_bucket{", 8)
            if PyBytes_GET_SIZE(labels):
                self._put(PyBytes_AS_STRING(labels), PyBytes_GET_SIZE(labels))
                self._put(b",", 1)
            self._put(PyBytes_AS_STRING(le), PyBytes_GET_SIZE(le))
            self._put(b"} ", 2)
            self._end_count(count)
        self._begin(b"_count", 6, labels)
        self._end_count(count)
        self._begin(b"_sum", 4, labels)
        return self._end_float(total)

    cdef int add_hist(self, bytes labels, const hist *h, int kind) except -1:
        return self.add_buckets(labels, h.bucket, <list>LABELS_OF[kind], h.sum)

    def add(self, bytes labels not None, value):
        if value is None:
            return
        if isinstance(value, int) and value >= 0:
            self.add_count(labels, value)
        elif not isnan(<double>value):
            self._begin(b"", 0, labels)
            self._end_float(value)

    def add_histogram(self, bytes labels not None, bounds, counts, double total):
        cdef uint64_t buckets[64]
        cdef Py_ssize_t i
        if len(counts) != len(bounds) + 1 or len(counts) > 64:
            raise ValueError(f"counts: wanted one more than {len(bounds)} bounds and at most 64, "
                             f"had {len(counts)}")
        for i in range(len(counts)):
            buckets[i] = counts[i]
        self.add_buckets(labels, buckets, [bucket_label(bound) for bound in bounds], total)

    def text(self):
        return PyBytes_FromStringAndSize(self.data, self.size)


def add_pair(Segment segment not None, int pair, bytes labels not None, Family ttft not None,
             Family inflight=None, Family inflight_tokens=None):
    cdef pair_cell total
    cdef uint64_t samples = 0
    cdef int i
    segment.sum_pair(pair, &total)
    for i in range(HIST_BUCKETS):
        samples += total.ttft.bucket[i]
    if inflight is not None:
        inflight.add_count(labels, max(total.requests, 0))
        inflight_tokens.add(labels, max(total.inflight_tokens, 0.0))
    if inflight is not None or samples:
        ttft.add_hist(labels, &total.ttft, HIST_TTFT)


def add_model(Segment segment not None, int model, bytes labels not None, *,
              Family prompt_tokens not None, Family completion_tokens not None,
              Family estimated_prompt_tokens not None, Family queue_depth not None,
              Family request_duration not None, Family tpot not None, Family itl not None,
              Family queue_wait not None):
    cdef model_cell total
    segment.sum_model(model, &total)
    prompt_tokens.add_count(labels, total.prompt_tokens)
    completion_tokens.add_count(labels, total.completion_tokens)
    estimated_prompt_tokens.add_count(labels, total.estimated_prompt_tokens)
    queue_depth.add_count(labels, max(total.queued, 0))
    request_duration.add_hist(labels, &total.duration, HIST_DURATION)
    tpot.add_hist(labels, &total.tpot, HIST_TPOT)
    itl.add_hist(labels, &total.itl, HIST_ITL)
    queue_wait.add_hist(labels, &total.queue_wait, HIST_QUEUE_WAIT)


def add_overhead(Segment segment not None, Family overhead not None):
    cdef hist total
    cdef unsigned int p
    memset(&total, 0, sizeof(total))
    for p in range(segment.base.processes + 1):
        hist_merge(&total, &fleet_block(segment.base, p).self.overhead)
    overhead.add_hist(b"", &total, HIST_OVERHEAD)
