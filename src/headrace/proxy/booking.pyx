from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headrace.core.fleet cimport *
from headrace.core.logline cimport (
    ACCESS_BYTES,
    ACCESS_TEXT_BYTES,
    RECORD_ACCESS,
    access_record,
)
from headrace.proxy.clock cimport unix_ns
from headrace.proxy.exchange cimport Exchange
from headrace.proxy.observer cimport Observer

cdef enum:
    SAMPLE_NS = 20_000_000  # between records for the dashboard, where nobody asked for all of them


cdef inline model_cell *_cell(Exchange x):
    return &x.plane.block.models[x.model.id if x.model is not None else 0]


cdef int decided(Exchange x) except -1:
    x.plane.count(SERIES_DECISIONS, x.plane.policy, x.lease.reason, 0, 0)
    return 0


cdef int sent(Exchange x, uint64_t now_ns) except -1:
    """The first attempt has been written."""
    hist_record(&x.plane.block.self.overhead, HIST_OVERHEAD, (now_ns - x.read_ns) * 1e-9)
    _cell(x).estimated_prompt_tokens += <uint64_t>x.lease.prompt_tokens
    return 0


cdef int tokens(Exchange x, int events, uint64_t now_ns) noexcept:
    cdef uint64_t last = x.lease.last_ns
    if last and x.lease.first_ns:
        hist_record(&_cell(x).itl, HIST_ITL, (now_ns - last) * 1e-9)
    x.lease.note_tokens(now_ns, events)
    return 0


cdef int judge(Exchange x, uint64_t now_ns) except -1:
    cdef Observer seen = x.seen
    if x.status == 429 or x.status == 503:
        x.lease.end_failed(now_ns, FAILURE_OVERLOADED)
        return OUTCOME_CLIENT_ERROR if x.status == 429 else OUTCOME_UPSTREAM_ERROR
    if x.status >= 500:
        x.lease.end_failed(now_ns, FAILURE_GOING_AWAY if seen.going_away else FAILURE_5XX)
        return OUTCOME_UPSTREAM_ERROR
    if x.status >= 400:
        x.lease.end_neutral(now_ns)
        return OUTCOME_CLIENT_ERROR
    if seen.error:
        x.lease.end_failed(now_ns, FAILURE_OVERLOADED if seen.overloaded else FAILURE_ERROR_EVENT)
        return OUTCOME_UPSTREAM_ERROR
    if seen.aborted:
        x.lease.end_failed(now_ns, FAILURE_GOING_AWAY)
        return OUTCOME_UPSTREAM_ERROR
    if not seen.finished:
        x.lease.end_neutral(now_ns)
        return OUTCOME_INCOMPLETE
    x.lease.end_ok(now_ns, seen.prompt_tokens, seen.completion_tokens, seen.cached_tokens)
    return OUTCOME_OK


cdef int ended(Exchange x, int outcome, int status, uint64_t now_ns) except -1:
    cdef model_cell *cell = _cell(x)
    cdef double tpot_s = 0
    x.plane.count(SERIES_REQUESTS, x.model.id if x.model is not None else 0, x.endpoint, outcome,
                  status)
    hist_record(&cell.duration, HIST_DURATION, (now_ns - x.began_ns) * 1e-9)
    if x.queue_wait_ns:
        hist_record(&cell.queue_wait, HIST_QUEUE_WAIT, x.queue_wait_ns * 1e-9)
    if outcome == OUTCOME_UPSTREAM_ERROR or outcome == OUTCOME_TIMEOUT:
        x.plane.segment.alarm()
    if x.status:
        tpot_s = _count_usage(x, cell)
    if x.plane.log_requests or now_ns >= x.plane.next_sample_ns:
        x.plane.next_sample_ns = now_ns + SAMPLE_NS
        _record(x, outcome, status, now_ns, tpot_s)
    return 0


cdef double _count_usage(Exchange x, model_cell *cell) except -1:
    """Token counters of an answered request; returns its time per output token, 0 if unknown."""
    cdef Observer seen = x.seen
    cdef int64_t made = seen.completion_tokens if seen.completion_tokens >= 0 else x.lease.generated
    cdef double tpot_s
    if seen.prompt_tokens > 0:
        cell.prompt_tokens += <uint64_t>seen.prompt_tokens
    if seen.completion_tokens > 0:
        cell.completion_tokens += <uint64_t>seen.completion_tokens
    if seen.cached_tokens > 0:
        cell.cached_tokens += <uint64_t>seen.cached_tokens
    if not x.stream or x.lease.first_ns == 0 or made < 2:
        return 0
    tpot_s = (x.lease.last_ns - x.lease.first_ns) * 1e-9 / (made - 1)
    hist_record(&cell.tpot, HIST_TPOT, tpot_s)
    return tpot_s


cdef int _record(Exchange x, int outcome, int status, uint64_t now_ns, double tpot_s) except -1:
    cdef char buffer[ACCESS_BYTES]
    cdef access_record r
    cdef bint tried = x.sent_ns > 0
    cdef bytes text = x.request_id + x.trace_text
    r.end_unix_ns = unix_ns()
    r.duration_ns = now_ns - x.began_ns
    r.queue_wait_ns = x.queue_wait_ns
    r.ttft_ns = x.lease.first_ns - x.lease.dispatched_ns if tried and x.lease.first_ns else 0
    r.bytes_in, r.bytes_out = x.bytes_in, x.bytes_out
    r.estimated_prompt_tokens = x.lease.prompt_tokens if tried else 0
    r.prompt_tokens = x.seen.prompt_tokens if x.status else -1
    r.completion_tokens = x.seen.completion_tokens if x.status else -1
    r.cached_tokens = x.seen.cached_tokens if x.status else -1
    r.tpot_s = tpot_s
    r.matched_tokens = x.lease.matched_tokens if tried else 0
    r.score = x.lease.score if tried else 0
    r.slot = x.lease.slot if tried else -1
    r.generation = x.lease.generation if tried else 0
    r.model = x.model.id if x.model is not None else 0
    r.status, r.reason = status, x.lease.reason if tried else 0
    r.text_bytes = <uint16_t>min(PyBytes_GET_SIZE(text), ACCESS_TEXT_BYTES)
    r.endpoint, r.outcome, r.retries, r.stream = x.endpoint, outcome, x.retries, x.stream
    r.output_limit = <uint32_t>min(x.max_tokens, 0x7fffffff)
    memcpy(buffer, &r, sizeof(r))
    memcpy(buffer + sizeof(r), PyBytes_AS_STRING(text), r.text_bytes)
    ring_push(fleet_ring(x.plane.segment.base, x.plane.index), RECORD_ACCESS, buffer,
              sizeof(r) + r.text_bytes)
    return 0


cdef bytes decision_line(Exchange x):
    return f"x-headrace-decision: {x.lease.decision}\r\n".encode()
