#include "promtext.h"

#include "hash.h"
#include "lanes.h"

#include <math.h>
#include <string.h>

#define BUCKET_MASK (PROMTEXT_BUCKETS - 1)

_Static_assert((PROMTEXT_BUCKETS & BUCKET_MASK) == 0, "buckets are masked");
_Static_assert(PROMTEXT_BUCKETS >= 4 * PROMTEXT_NAMES_MAX, "an empty bucket ends every probe run");
_Static_assert(PROMTEXT_NAME_LEN_MAX < 64, "a length is a bit of one word");

static inline int is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static inline int is_digit(char c) { return c >= '0' && c <= '9'; }

static inline uint32_t skip_blanks(const char *text, uint32_t at, uint32_t end)
{
    while (at < end && is_blank(text[at]))
        at++;
    return at;
}

/* Index of the bucket that holds the name, or of the empty one where it would go. */
static uint32_t find_bucket(const struct promtext_table *table, const char *text, uint32_t len)
{
    uint32_t at = (uint32_t)hash_bytes(text, len, 0) & BUCKET_MASK;
    while (table->bucket[at]) {
        const struct promtext_name *name = &table->names[table->bucket[at] - 1];
        if (name->len == len && memcmp(name->text, text, len) == 0)
            break;
        at = (at + 1) & BUCKET_MASK;
    }
    return at;
}

int promtext_prepare(struct promtext_table *table, const struct promtext_name *names,
                     uint32_t count)
{
    memset(table, 0, sizeof *table);
    table->names = names;
    if (count > PROMTEXT_NAMES_MAX)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        if (names[i].len == 0 || names[i].len > PROMTEXT_NAME_LEN_MAX)
            return -1;
        uint32_t at = find_bucket(table, names[i].text, names[i].len);
        if (table->bucket[at])
            return -1;
        table->bucket[at] = (uint16_t)(i + 1);
        table->lengths |= 1ULL << names[i].len;
    }
    return 0;
}

/* 10^e in the widest type: 64 bits of mantissa or more, so that the one rounding to double
 * dominates. */
static long double power_of_ten(int e)
{
    long double result = 1.0L, square = 10.0L;
    for (unsigned n = (unsigned)(e < 0 ? -e : e); n; n >>= 1) {
        if (n & 1)
            result *= square;
        square *= square;
    }
    return result;
}

static double scale(uint64_t mantissa, int e)
{
    if (mantissa == 0 || e < -400)
        return 0.0;
    if (e > 400)
        return INFINITY;
    return (double)(e < 0 ? (long double)mantissa / power_of_ten(e)
                          : (long double)mantissa * power_of_ten(e));
}

static size_t match_word(const char *text, size_t len, const char *word)
{
    size_t n = strlen(word);
    if (len < n)
        return 0;
    for (size_t i = 0; i < n; i++)
        if ((text[i] | 0x20) != word[i])
            return 0;
    return n;
}

/* `e` or `E`, a sign, digits; 0 bytes if that is not what stands there. */
static size_t read_exponent(const char *text, size_t len, int *exponent)
{
    size_t at = 1;
    int negative = 0, value = 0;
    if (len < 2 || (text[0] | 0x20) != 'e')
        return 0;
    if (text[at] == '+' || text[at] == '-')
        negative = text[at++] == '-';
    size_t first = at;
    for (; at < len && is_digit(text[at]); at++)
        if (value < 100000)
            value = value * 10 + (text[at] - '0');
    *exponent = negative ? -value : value;
    return at == first ? 0 : at;
}

size_t promtext_number(const char *text, size_t len, double *value)
{
    size_t at = 0, n;
    int negative = 0, digits = 0, exponent = 0, shift = 0;
    uint64_t mantissa = 0;
    if (len && (text[0] == '+' || text[0] == '-'))
        negative = text[at++] == '-';
    if ((n = match_word(text + at, len - at, "nan"))) {
        *value = NAN;
        return at + n;
    }
    if ((n = match_word(text + at, len - at, "infinity")) ||
        (n = match_word(text + at, len - at, "inf"))) {
        *value = negative ? -INFINITY : INFINITY;
        return at + n;
    }
    for (int fraction = 0; at < len && (is_digit(text[at]) || (text[at] == '.' && !fraction));
         at++) {
        if (text[at] == '.') {
            fraction = 1;
            continue;
        }
        digits = 1;
        if (mantissa < 1000000000000000000ULL) { /* 19 digits fit; what follows only shifts */
            mantissa = mantissa * 10 + (uint64_t)(text[at] - '0');
            shift -= fraction;
        } else {
            shift += !fraction;
        }
    }
    if (!digits)
        return 0;
    at += read_exponent(text + at, len - at, &exponent);
    *value = negative ? -scale(mantissa, exponent + shift) : scale(mantissa, exponent + shift);
    return at;
}

/* Position of the quote that closes the string which begins at `at`, or `end`. */
static uint32_t closing_quote(const char *text, uint32_t at, uint32_t end)
{
    for (int n = LANES; n == LANES && end - at >= LANES; at += (uint32_t)n) {
        lanes v = lanes_load((const unsigned char *)text + at);
        n = lanes_first((v == '"') | (v == '\\'));
    }
    for (; at < end && text[at] != '"'; at++)
        if (text[at] == '\\' && ++at == end)
            break;
    return at;
}

/* Bytes that end a label's name. */
static const unsigned char ends_label_name[256] = {
    [' '] = 1, ['\t'] = 1, ['\r'] = 1, ['='] = 1, [','] = 1,
    ['{'] = 1, ['}'] = 1,  ['"'] = 1,  [0] = 1,
};

int promtext_next_label(const char *text, uint32_t end, uint32_t *at, struct promtext_label *label)
{
    uint32_t p = skip_blanks(text, *at, end);
    *at = p;
    if (p == end || text[p] == '}')
        return 0;
    label->name_at = p;
    while (p < end && !ends_label_name[(unsigned char)text[p]])
        p++;
    label->name_len = p - label->name_at;
    p = skip_blanks(text, p, end);
    if (label->name_len == 0 || p == end || text[p] != '=')
        return -1;
    p = skip_blanks(text, p + 1, end);
    if (p == end || text[p] != '"')
        return -1;
    label->value_at = p + 1;
    p = closing_quote(text, p + 1, end);
    if (p >= end)
        return -1;
    label->value_len = p - label->value_at;
    p = skip_blanks(text, p + 1, end);
    if (p < end && text[p] == ',')
        p++;
    else if (p < end && text[p] != '}')
        return -1;
    *at = p;
    return 1;
}

/* What may follow a value: nothing, a time stamp, an exemplar behind `#`. */
static int is_tail(const char *text, uint32_t at, uint32_t end)
{
    double timestamp;
    if (at < end && !is_blank(text[at]))
        return 0;
    at = skip_blanks(text, at, end);
    if (at < end && text[at] != '#') {
        size_t used = promtext_number(text + at, end - at, &timestamp);
        if (used == 0)
            return 0;
        at = skip_blanks(text, at + (uint32_t)used, end);
    }
    return at == end || text[at] == '#';
}

/* Reads from behind the name to the end of the line. 0, or -1 if it is broken. */
static int read_sample(const char *page, uint32_t at, uint32_t end, struct promtext_sample *sample)
{
    struct promtext_label label;
    int more = 0;
    sample->labels_at = at;
    sample->labels_len = 0;
    at = skip_blanks(page, at, end);
    if (at < end && page[at] == '{') {
        sample->labels_at = ++at;
        while ((more = promtext_next_label(page, end, &at, &label)) > 0)
            ;
        if (more < 0 || at == end)
            return -1;
        sample->labels_len = at - sample->labels_at;
        at = skip_blanks(page, at + 1, end);
    }
    size_t used = promtext_number(page + at, end - at, &sample->value);
    if (used == 0)
        return -1;
    return is_tail(page, at + (uint32_t)used, end) ? 0 : -1;
}

static inline int ends_name(char c) { return c == '{' || is_blank(c); }

int promtext_scan(const struct promtext_table *table, const char *page, size_t len,
                  struct promtext_sample *out, uint32_t capacity, struct promtext_counts *counts)
{
    *counts = (struct promtext_counts){0, 0, 0};
    if (len > PROMTEXT_PAGE_MAX)
        return -1;
    uint32_t end = 0;
    for (uint32_t at = 0; at < len; at = end + 1) {
        const char *newline = memchr(page + at, '\n', len - at);
        end = newline ? (uint32_t)(newline - page) : (uint32_t)len;
        at = skip_blanks(page, at, end);
        if (at == end || page[at] == '#')
            goto next;
        uint32_t stop = at + PROMTEXT_NAME_LEN_MAX + 1 < end ? at + PROMTEXT_NAME_LEN_MAX + 1 : end;
        uint32_t p = at;
        while (p < stop && !ends_name(page[p]))
            p++;
        if (p - at > PROMTEXT_NAME_LEN_MAX || !(table->lengths >> (p - at) & 1))
            goto next;
        uint16_t found = table->bucket[find_bucket(table, page + at, p - at)];
        if (!found)
            goto next;
        struct promtext_sample sample = {.series = found - 1u};
        if (read_sample(page, p, end, &sample))
            counts->broken++;
        else if (counts->samples == capacity)
            counts->omitted++;
        else
            out[counts->samples++] = sample;
    next:
        if (end == len)
            break;
    }
    return 0;
}
