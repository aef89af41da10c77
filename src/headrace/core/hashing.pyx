from libc.stdint cimport uint64_t

cdef extern from "hash.h" nogil:
    uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)


def hash64(bytes data not None, uint64_t seed=0):
    return hash_bytes(<const char *>data, <size_t>len(data), seed)
