"""Paged KV memory of one engine: reference-counted blocks, LRU eviction, a table by block hash.

A block is in use (references > 0), free but still cached (in the LRU list, with a hash), or free.
Free blocks are handed out in this order: never used ones, then the one that was freed first.
Hash 0 means: not in the table.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t


cdef class KvCache:
    cdef readonly int32_t capacity_blocks
    cdef int32_t fresh          # blocks 0 … fresh - 1 have been used before
    cdef int32_t lru_count
    cdef int32_t lru_head       # freed longest ago, taken next
    cdef int32_t lru_tail
    cdef int32_t *references
    cdef int32_t *older         # neighbours in the LRU list, -1 at its ends
    cdef int32_t *newer
    cdef uint64_t *hashes
    cdef int32_t *table         # block + 1 at the hash's place or behind it, 0: empty
    cdef int32_t table_used
    cdef int table_shift        # 64 - log2(size)
    cdef list journal           # (hash, stored or dropped), in order; None: not kept
    cdef int64_t taken_blocks   # ever handed out

    cdef int32_t free_blocks(self) noexcept
    cdef int32_t lookup(self, uint64_t hash) noexcept        # block, or -1
    cdef void take_cached(self, int32_t block) noexcept      # one more reference
    cdef int32_t take_free(self) noexcept                    # block with one reference, or -1
    cdef void give_back(self, int32_t block) noexcept        # one reference less
    cdef int register(self, int32_t block, uint64_t hash) except -1
    cdef int clear(self) except -1

    cdef uint64_t place_of(self, uint64_t hash) noexcept
    cdef void lru_remove(self, int32_t block) noexcept
    cdef void table_remove(self, uint64_t hash) noexcept
    cdef int table_resize(self, int shift) except -1
