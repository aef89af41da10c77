"""The text scanner for scraped pages; its rules stand in csrc/promtext.h."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef extern from "promtext.h" nogil:
    enum:
        PROMTEXT_NAMES_MAX
        PROMTEXT_NAME_LEN_MAX

    struct promtext_name:
        const char *text
        uint32_t len

    struct promtext_table:
        const promtext_name *names
        uint64_t lengths

    struct promtext_sample:
        double value
        uint32_t series
        uint32_t labels_at
        uint32_t labels_len

    struct promtext_counts:
        uint32_t samples
        uint32_t broken
        uint32_t omitted

    struct promtext_label:
        uint32_t name_at
        uint32_t name_len
        uint32_t value_at
        uint32_t value_len

    int promtext_prepare(promtext_table *table, const promtext_name *names, uint32_t count)
    int promtext_scan(const promtext_table *table, const char *page, size_t len,
                      promtext_sample *out, uint32_t capacity, promtext_counts *counts)
    int promtext_next_label(const char *text, uint32_t end, uint32_t *at, promtext_label *label)
    size_t promtext_number(const char *text, size_t length, double *value)


cdef class Scanner:
    cdef list _names            # str, in the order of the table
    cdef list _name_bytes       # keeps the text alive that the table points to
    cdef dict _labels           # bytes -> str: the labels that are kept
    cdef promtext_table _table
    cdef promtext_name *_wanted
    cdef promtext_sample *_found
    cdef uint32_t _capacity

    cdef dict _read_labels(self, const char *text, promtext_sample *sample)
