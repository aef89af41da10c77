"""The access log's lines, written from the records in the rings of the segment."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t


cdef extern from "record.h" nogil:
    enum:
        RECORD_ACCESS
        ACCESS_TEXT_BYTES
        ACCESS_BYTES
    struct access_record:
        uint64_t end_unix_ns, duration_ns, queue_wait_ns, ttft_ns, bytes_in, bytes_out
        double estimated_prompt_tokens
        int64_t prompt_tokens, completion_tokens, cached_tokens
        double tpot_s, matched_tokens, score
        int slot
        uint32_t generation
        uint16_t model, status, reason, text_bytes
        unsigned char endpoint, outcome, retries, stream
        uint32_t output_limit

cdef extern from "logline.h" nogil:
    struct logline_value:
        const char *start
        uint32_t len
    struct logline_names:
        const logline_value *values
        uint32_t count
        logline_value other
    struct logline:
        logline_value policy
        logline_names endpoints, outcomes, reasons, models, replicas
        size_t line_bytes
    void logline_prepare(logline *l)
    Py_ssize_t logline_write(const logline *l, const void *record, uint32_t len, char *out,
                             size_t room)


cdef class LogLines:
    cdef logline line
    cdef list kept  # what the names point to
    cdef char *out
    cdef size_t room

    cdef logline_value _value(self, bytes text)
    cdef int _take_names(self, logline_names *names, list texts, bytes other) except -1
