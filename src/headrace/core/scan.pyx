from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc

cdef extern from "hash.h" nogil:
    uint64_t hash_mix(uint64_t a, uint64_t b)

FIELDS = (
    "model", "stream", "stream_options", "include_usage", "n", "max_tokens",
    "max_completion_tokens", "max_output_tokens", "priority", "session_id", "user", "cache_salt",
    "lora_path", "instructions", "system", "tools", "functions", "messages", "prompt", "input",
    "text", "input_ids", "query", "queries", "documents", "text_1", "text_2", "items",
)
KINDS = ("absent", "null", "false", "true", "number", "string", "array", "object")
MAX_PREFIX_KEYS = SCAN_MAX_BLOCKS
PREFIX_BLOCK_BYTES = SCAN_BLOCK_BYTES


cdef class BodyScan:
    def __cinit__(self, bytes body not None):
        self.body = body
        self.data = PyBytes_AS_STRING(body)
        self.size = <size_t>PyBytes_GET_SIZE(body)
        if scan_body(self.data, self.size, &self.s) < 0:
            raise ValueError("the body is no JSON object")

    cdef bytes decoded(self, int field):
        cdef scan_field *f = &self.s.field[field]
        if f.kind != JSON_STRING:
            return None
        cdef size_t cap = f.end - f.start
        if not f.escaped:
            return PyBytes_FromStringAndSize(self.data + f.start + 1, f.end - f.start - 2)
        cdef char *out = <char *>PyMem_Malloc(cap)
        if out == NULL:
            raise MemoryError
        cdef ptrdiff_t size = scan_decode(self.data, f, out, cap)
        try:
            return out[:size] if size >= 0 else None
        finally:
            PyMem_Free(out)

    cdef size_t prefix(self, uint64_t *keys, size_t max_keys) noexcept nogil:
        return scan_prefix(self.data, self.size, &self.s, keys, max_keys)

    def kind(self, str field not None):
        return KINDS[self.s.field[FIELDS.index(field)].kind]

    def span(self, str field not None):
        cdef scan_field *f = &self.s.field[FIELDS.index(field)]
        return f.start, f.end

    def text(self, str field not None):
        return self.decoded(FIELDS.index(field))

    def prefix_keys(self, size_t max=SCAN_MAX_BLOCKS):
        cdef uint64_t keys[SCAN_MAX_BLOCKS]
        cdef size_t count = self.prefix(keys, max)
        return [keys[i] for i in range(count)]

    @property
    def object_span(self):
        return self.s.object_start, self.s.object_end

    @property
    def counts(self):
        return dict(self.s.counts)

    @property
    def messages(self):
        return self.s.messages

    @property
    def prompts(self):
        return self.s.prompts

    @property
    def images(self):
        return self.s.images

    @property
    def audios(self):
        return self.s.audios

    @property
    def videos(self):
        return self.s.videos

    @property
    def token_ids(self):
        return self.s.token_ids

    @property
    def n(self):
        return self.s.n

    @property
    def max_tokens(self):
        return self.s.max_tokens

    @property
    def priority(self):
        return self.s.priority


def prefix_root(bytes model not None, bytes lora=None, bytes salt=None):
    return scan_root(
        PyBytes_AS_STRING(model), len(model),
        NULL if lora is None else PyBytes_AS_STRING(lora), 0 if lora is None else len(lora),
        NULL if salt is None else PyBytes_AS_STRING(salt), 0 if salt is None else len(salt))


def rooted(keys, uint64_t root):
    cdef uint64_t key
    found = []
    for key in keys:
        found.append(hash_mix(key, root))
    return found
