"""Chained hashes of a prompt's cache blocks."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t

cdef extern from "hash.h" nogil:
    uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)


def block_hashes(bytes data not None, Py_ssize_t block_bytes, uint64_t seed):
    if block_bytes < 1:
        raise ValueError(f"blocks of {block_bytes} bytes, wanted 1 or more")
    cdef Py_ssize_t count = len(data) // block_bytes, i
    cdef bytes hashes = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef uint64_t *out = <uint64_t *><void *>PyBytes_AS_STRING(hashes)
    cdef const char *at = PyBytes_AS_STRING(data)
    for i in range(count):
        seed = hash_bytes(at + i * block_bytes, <size_t>block_bytes, seed)
        out[i] = seed
    return hashes
