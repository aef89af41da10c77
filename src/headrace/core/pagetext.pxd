"""Samples of metric families as exposition text, written straight from the cells of the segment."""

from libc.stdint cimport uint64_t

from headrace.core.fleet cimport hist
from headrace.core.segment cimport Segment


cdef class Family:
    cdef bytes name
    cdef char *data
    cdef size_t size
    cdef size_t room

    cdef int _need(self, size_t more) except -1
    cdef void _put(self, const char *data, size_t size) noexcept
    cdef void _put_count(self, uint64_t value) noexcept
    cdef int _begin(self, const char *suffix, size_t suffix_size, bytes labels) except -1
    cdef int _end_count(self, uint64_t value) except -1
    cdef int _end_float(self, double value) except -1
    cdef int add_count(self, bytes labels, uint64_t value) except -1
    cdef int add_buckets(self, bytes labels, const uint64_t *buckets, list bounds,
                         double total) except -1
    cdef int add_hist(self, bytes labels, const hist *h, int kind) except -1
