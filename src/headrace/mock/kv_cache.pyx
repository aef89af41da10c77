"""Paged KV memory with a prefix cache; kv_cache.pxd says what a block's life is."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

cdef uint64_t GOLDEN = 0x9E3779B97F4A7C15  # spreads hashes that callers made by counting
cdef int FIRST_SHIFT = 64 - 8


cdef class KvCache:

    def __cinit__(self, int32_t capacity_blocks):
        if capacity_blocks < 1:
            raise ValueError(f"capacity_blocks is {capacity_blocks}, wanted 1 or more")
        cdef size_t count = capacity_blocks
        # Not cleared: the pages of blocks that are never used stay unmapped.
        self.references = <int32_t *>malloc(count * sizeof(int32_t))
        self.older = <int32_t *>malloc(count * sizeof(int32_t))
        self.newer = <int32_t *>malloc(count * sizeof(int32_t))
        self.hashes = <uint64_t *>malloc(count * sizeof(uint64_t))
        if not (self.references and self.older and self.newer and self.hashes):
            raise MemoryError
        self.capacity_blocks = capacity_blocks
        self.clear()

    def __dealloc__(self):
        free(self.references)
        free(self.older)
        free(self.newer)
        free(self.hashes)
        free(self.table)

    cdef int clear(self) except -1:
        free(self.table)
        self.table = NULL
        self.table_used = 0
        self.fresh = 0
        self.lru_count = 0
        self.lru_head = self.lru_tail = -1
        return self.table_resize(FIRST_SHIFT)

    cdef int32_t free_blocks(self) noexcept:
        return self.capacity_blocks - self.fresh + self.lru_count

    cdef uint64_t place_of(self, uint64_t hash) noexcept:
        return (hash * GOLDEN) >> self.table_shift

    cdef int32_t lookup(self, uint64_t hash) noexcept:
        cdef uint64_t mask = (<uint64_t>1 << (64 - self.table_shift)) - 1
        cdef uint64_t at = self.place_of(hash)
        cdef int32_t entry = self.table[at]
        while entry:
            if self.hashes[entry - 1] == hash:
                return entry - 1
            at = (at + 1) & mask
            entry = self.table[at]
        return -1

    cdef void take_cached(self, int32_t block) noexcept:
        if self.references[block] == 0:
            self.lru_remove(block)
        self.references[block] += 1

    cdef int32_t take_free(self) noexcept:
        cdef int32_t block
        if self.fresh < self.capacity_blocks:
            block = self.fresh
            self.fresh += 1
        elif self.lru_count:
            block = self.lru_head
            self.lru_remove(block)
            if self.hashes[block]:
                self.table_remove(self.hashes[block])
                if self.journal is not None:
                    self.journal.append((self.hashes[block], False))
        else:
            return -1
        self.hashes[block] = 0
        self.references[block] = 1
        self.taken_blocks += 1
        return block

    cdef void give_back(self, int32_t block) noexcept:
        self.references[block] -= 1
        if self.references[block]:
            return
        self.older[block] = self.lru_tail
        self.newer[block] = -1
        if self.lru_tail >= 0:
            self.newer[self.lru_tail] = block
        else:
            self.lru_head = block
        self.lru_tail = block
        self.lru_count += 1

    cdef int register(self, int32_t block, uint64_t hash) except -1:
        """Make `block` the one that `hash` finds; a block that had this hash loses it, because the
        later copy outlives the earlier one."""
        cdef int32_t held = self.lookup(hash)
        if held == block:
            return 0
        if held >= 0:
            self.table_remove(hash)
            self.hashes[held] = 0
        elif self.journal is not None:
            self.journal.append((hash, True))
        if held < 0 and self.table_used * 2 >= (<int64_t>1 << (64 - self.table_shift)):
            self.table_resize(self.table_shift - 1)
        self.hashes[block] = hash
        self.table_used += 1
        cdef uint64_t mask = (<uint64_t>1 << (64 - self.table_shift)) - 1
        cdef uint64_t at = self.place_of(hash)
        while self.table[at]:
            at = (at + 1) & mask
        self.table[at] = block + 1
        return 0

    cdef void lru_remove(self, int32_t block) noexcept:
        cdef int32_t before = self.older[block], after = self.newer[block]
        if before >= 0:
            self.newer[before] = after
        else:
            self.lru_head = after
        if after >= 0:
            self.older[after] = before
        else:
            self.lru_tail = before
        self.lru_count -= 1

    cdef void table_remove(self, uint64_t hash) noexcept:
        """Backward-shift deletion (Knuth 6.4, algorithm R): later entries move up."""
        cdef uint64_t mask = (<uint64_t>1 << (64 - self.table_shift)) - 1
        cdef uint64_t hole = self.place_of(hash), at, home
        while self.hashes[self.table[hole] - 1] != hash:
            hole = (hole + 1) & mask
        self.table_used -= 1
        at = hole
        while True:
            at = (at + 1) & mask
            if self.table[at] == 0:
                break
            home = self.place_of(self.hashes[self.table[at] - 1])
            # movable if its home does not lie in (hole, at], in circular order
            if ((at - home) & mask) >= ((at - hole) & mask):
                self.table[hole] = self.table[at]
                hole = at
        self.table[hole] = 0

    cdef int table_resize(self, int shift) except -1:
        cdef int32_t *old = self.table
        cdef uint64_t size = <uint64_t>1 << (64 - shift), mask = size - 1, at
        cdef uint64_t i, old_size = <uint64_t>1 << (64 - self.table_shift) if old else 0
        cdef int32_t *table = <int32_t *>calloc(size, sizeof(int32_t))
        if not table:
            raise MemoryError
        self.table = table
        self.table_shift = shift
        for i in range(old_size):
            if old[i]:
                at = self.place_of(self.hashes[old[i] - 1])
                while table[at]:
                    at = (at + 1) & mask
                table[at] = old[i]
        free(old)
        return 0
