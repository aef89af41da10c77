/* Picks wanted series out of a Prometheus text or OpenMetrics page, in one pass and without a copy.
 *
 * An engine's page is 50 kB of histogram buckets around ten lines that matter, so the scanner hops
 * from newline to newline (memchr: the C library's vector code) and looks at a name only if its
 * length is one of the wanted ones. It is lenient: blanks around every token, tabs, CRLF, trailing
 * commas, time stamps, exemplars, `# EOF`, any TYPE. A wanted line that it cannot read is dropped
 * and counted; other lines are not looked into. The caller owns all memory. Offsets are bytes from
 * the start of the page.
 */
#ifndef HEADRACE_PROMTEXT_H
#define HEADRACE_PROMTEXT_H

#include <stddef.h>
#include <stdint.h>

#define PROMTEXT_NAMES_MAX 128
#define PROMTEXT_NAME_LEN_MAX 63
#define PROMTEXT_BUCKETS                                                                           \
    512 /* a power of two, at least 4 × PROMTEXT_NAMES_MAX: short probe runs                      \
         */
#define PROMTEXT_PAGE_MAX UINT32_MAX

struct promtext_name {
    const char *text;
    uint32_t len;
};

/* The wanted names, hashed. `names` is the caller's array and must outlive the table. */
struct promtext_table {
    const struct promtext_name *names;
    uint64_t lengths;                  /* bit n: some wanted name has n bytes */
    uint16_t bucket[PROMTEXT_BUCKETS]; /* 0: empty, else index into names + 1 */
};

struct promtext_sample {
    double value;
    uint32_t series;    /* index into the wanted names */
    uint32_t labels_at; /* what stands between the braces; labels_len is 0 without labels */
    uint32_t labels_len;
};

struct promtext_counts {
    uint32_t samples; /* written */
    uint32_t broken;  /* wanted lines that could not be read */
    uint32_t omitted; /* good lines for which there was no room */
};

struct promtext_label {
    uint32_t name_at, name_len;
    uint32_t value_at, value_len; /* as written: escapes are the caller's */
};

/* Fills `table`. 0, or -1 if there are too many names, or one is empty, too long or there twice. */
int promtext_prepare(struct promtext_table *table, const struct promtext_name *names,
                     uint32_t count);

/* Writes the wanted samples of the page in its order. 0, or -1 if the page is longer than
 * PROMTEXT_PAGE_MAX. */
int promtext_scan(const struct promtext_table *table, const char *page, size_t len,
                  struct promtext_sample *out, uint32_t capacity, struct promtext_counts *counts);

/* Next `name="value"` of the label block text[at, end). Moves *at behind it.
 * 1: `label` is filled; 0: the block is over (end, or a closing brace, which *at then points to);
 * -1: malformed. */
int promtext_next_label(const char *text, uint32_t end, uint32_t *at, struct promtext_label *label);

/* Reads a decimal number, NaN or Inf (any case, sign) at text[0, len). Returns the bytes used, 0 if
 * there is none. The value is right to one unit in the last place: the figures are counts, seconds
 * and ratios. */
size_t promtext_number(const char *text, size_t len, double *value);

#endif
