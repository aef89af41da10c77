from libc.stdint cimport uint64_t
from libc.string cimport memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from headrace.core.lb cimport *
from headrace.core.scan cimport *

MAX_PREFIX_KEYS = PREFIX_MAX_BLOCKS
GENERATE, EMBED = KIND_GENERATE, KIND_EMBED

cdef enum:
    NO_RANK = 1 << 30
    RANK_SESSION_ID = NO_RANK - 2
    RANK_USER = NO_RANK - 1
    MOST_SEQUENCES = 1 << 16
    TOKENS_PER_AUDIO = 400
    TOKENS_PER_VIDEO = 2000


cdef class RouteRequest:
    def __cinit__(self):
        self.clear()

    cdef void clear(self) noexcept:
        self.model = 0
        self.kind = KIND_GENERATE
        self.stream = False
        self.priority = 2
        self.sequences = 1
        self.max_tokens = 0
        self.prompt_tokens = 0
        memset(self.features, 0, sizeof(self.features))
        self.estimated = False
        self.has_session = False
        self.session = 0
        self.session_rank = NO_RANK
        self.prefix_count = 0
        self.excluded_count = 0

    cdef void offer_session(self, int rank, const char *key, size_t size) noexcept:
        if size > 0 and rank < self.session_rank:
            self.session_rank = rank
            self.has_session = True
            self.session = hash_bytes(key, size, 0)

    cdef int fill(self, BodyScan scan, bytes model, int kind) except -1:
        cdef bytes lora = scan.decoded(SCAN_LORA)
        cdef bytes salt = scan.decoded(SCAN_CACHE_SALT)
        cdef uint64_t root
        cdef int i
        self.kind = kind
        self.stream = scan.s.field[<int>SCAN_STREAM].kind == JSON_TRUE
        self.max_tokens = max(scan.s.max_tokens, 0)
        self.sequences = <int>min(<double>max(scan.s.n, 1) * scan.s.prompts, <double>MOST_SEQUENCES)
        self._count(scan)
        self._offer_field(scan, SCAN_SESSION_ID, RANK_SESSION_ID)
        self._offer_field(scan, SCAN_USER, RANK_USER)
        root = scan_root(PyBytes_AS_STRING(model), PyBytes_GET_SIZE(model),
                         NULL if lora is None else PyBytes_AS_STRING(lora),
                         0 if lora is None else PyBytes_GET_SIZE(lora),
                         NULL if salt is None else PyBytes_AS_STRING(salt),
                         0 if salt is None else PyBytes_GET_SIZE(salt))
        self.prefix_count = <int>scan.prefix(self.prefix, PREFIX_MAX_BLOCKS)
        for i in range(self.prefix_count):
            self.prefix[i] = hash_mix(self.prefix[i], root)
        return 0

    cdef int _offer_field(self, BodyScan scan, int field, int rank) except -1:
        """A session key may be a string or a number; objects and the like are none."""
        cdef scan_field *f = &scan.s.field[field]
        cdef bytes key
        if f.kind == JSON_STRING:
            key = scan.decoded(field)
            if key is not None:
                self.offer_session(rank, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        elif f.kind == JSON_NUMBER:
            self.offer_session(rank, scan.data + f.start, f.end - f.start)
        return 0

    cdef void _count(self, BodyScan scan) noexcept:
        cdef text_counts *t = &scan.s.counts
        self.features[TOKEN_LETTERS], self.features[TOKEN_WORDS] = t.letters, t.words
        self.features[TOKEN_DIGITS] = t.digits
        self.features[TOKEN_SPACES], self.features[TOKEN_SPACE_RUNS] = t.spaces, t.space_runs
        self.features[TOKEN_MARKS], self.features[TOKEN_MARK_RUNS] = t.marks, t.mark_runs
        self.features[TOKEN_LATIN], self.features[TOKEN_CJK] = t.latin, t.cjk
        self.features[TOKEN_OTHER] = t.other
        self.features[TOKEN_MESSAGES] = scan.s.messages
        self.features[TOKEN_EXACT] = (
            scan.s.token_ids + <double>scan.s.images * TOKENS_PER_IMAGE
            + <double>scan.s.audios * TOKENS_PER_AUDIO + <double>scan.s.videos * TOKENS_PER_VIDEO)
        self.estimated = True
        self.prompt_tokens = tokens_estimate(tokens_prior, self.features)

    # ---- for the library

    def offer(self, int rank, bytes key not None):
        self.offer_session(rank, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))

    def read(self, BodyScan scan not None, bytes model not None, int kind=KIND_GENERATE):
        self.fill(scan, model, kind)

    def set_prefix(self, keys):
        """Chained block keys, one for each 64 tokens of the prompt's beginning; those beyond 512
        are not looked at.
        """
        cdef int i = 0
        for key in keys[:PREFIX_MAX_BLOCKS]:
            self.prefix[i] = key
            i += 1
        self.prefix_count = i

    @property
    def prefix_keys(self):
        return [self.prefix[i] for i in range(self.prefix_count)]
