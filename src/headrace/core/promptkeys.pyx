from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from headrace.core.scan cimport SCAN_MAX_BLOCKS, SCAN_MESSAGES, SCAN_PROMPT

cdef extern from "blocks.h" nogil:
    enum:
        BLOCK_BYTES
        LANES
    struct blocks:
        unsigned char bytes[256]
        size_t used
        uint64_t chain
        uint64_t *keys
        size_t count, max
    void blocks_add_byte(blocks *b, unsigned char byte)
    void blocks_add_bytes(blocks *b, const unsigned char *p, size_t len)

cdef extern from "marks.h" nogil:
    enum:
        MARK_FIELD
        MARK_TURN
        MARK_CONTENT

cdef enum:
    HEAD_BYTES = 16  # of a state: count and chain, then the bytes of the unfinished block


cdef class PromptKeys:
    cdef blocks b
    cdef uint64_t keys[SCAN_MAX_BLOCKS]
    cdef size_t first  # keys before it were given out, or belong to the state it began with

    def __cinit__(self, bytes state=None):
        memset(&self.b, 0, sizeof(self.b))
        self.b.keys, self.b.max = self.keys, SCAN_MAX_BLOCKS
        if state is not None:
            self._resume(state)

    cdef int _resume(self, bytes state) except -1:
        cdef const char *p = PyBytes_AS_STRING(state)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(state)
        cdef uint64_t count
        if not HEAD_BYTES <= size < HEAD_BYTES + BLOCK_BYTES:
            raise ValueError(f"a state of {size} bytes")
        memcpy(&count, p, 8)
        memcpy(&self.b.chain, p + 8, 8)
        if count > SCAN_MAX_BLOCKS:
            raise ValueError(f"a state after {count} blocks")
        self.b.used = size - HEAD_BYTES
        memcpy(self.b.bytes, p + HEAD_BYTES, self.b.used)
        self.b.count = self.first = count
        return 0

    def begin_prompt(self):
        blocks_add_byte(&self.b, MARK_FIELD)
        blocks_add_byte(&self.b, SCAN_PROMPT)

    def begin_chat(self):
        blocks_add_byte(&self.b, MARK_FIELD)
        blocks_add_byte(&self.b, SCAN_MESSAGES)

    def begin_turn(self, bytes role not None):
        blocks_add_byte(&self.b, MARK_TURN)
        self.add(role)
        blocks_add_byte(&self.b, MARK_CONTENT)

    def add(self, bytes text not None):
        blocks_add_bytes(&self.b, <const unsigned char *>PyBytes_AS_STRING(text),
                         PyBytes_GET_SIZE(text))

    def take(self):
        found = [self.keys[i] for i in range(self.first, self.b.count)]
        self.first = self.b.count
        return found

    @property
    def state(self):
        cdef uint64_t head[2]
        cdef size_t used = self.b.used if self.b.used < BLOCK_BYTES else 0  # full: at the last key
        head[0], head[1] = self.b.count, self.b.chain
        return (PyBytes_FromStringAndSize(<char *>head, HEAD_BYTES)
                + PyBytes_FromStringAndSize(<char *>self.b.bytes, used))
