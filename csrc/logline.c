#include "logline.h"

#include <math.h>

#include "lanes.h"
#include "record.h"

enum {
    FIXED_BYTES = 1024, /* field names and the longest numbers take some 700 */
    ESCAPED_BYTES = 6,  /* of one byte: \u001f */
    MAX_DIGITS = 20,    /* of a 64-bit number */
    NS_DIGITS = 9,
};

#define NS_PER_S 1000000000ULL
#define MAX_EXACT 9e9 /* whose nine decimals fit into 64 bits */

#define PUT(p, literal) ((p) = put(p, literal, sizeof(literal) - 1))

static inline char *put(char *p, const char *bytes, size_t len)
{
    memcpy(p, bytes, len);
    return p + len;
}

static char *put_u64(char *p, uint64_t v)
{
    char digits[MAX_DIGITS];
    int at = MAX_DIGITS;
    do
        digits[--at] = (char)('0' + v % 10);
    while (v /= 10);
    return put(p, digits + at, (size_t)(MAX_DIGITS - at));
}

/* Seconds with the decimals that they have, at least one: so they stay floats to every reader. */
static char *put_ns(char *p, uint64_t ns)
{
    uint32_t rest = (uint32_t)(ns % NS_PER_S);
    int last = NS_DIGITS;
    p = put_u64(p, ns / NS_PER_S);
    *p = '.';
    for (int i = NS_DIGITS; i > 0; i--, rest /= 10)
        p[i] = (char)('0' + rest % 10);
    while (last > 1 && p[last] == '0')
        last--;
    return p + last + 1;
}

static char *put_null(char *p) { return put(p, "null", 4); }

static char *put_known_ns(char *p, uint64_t ns) { return ns ? put_ns(p, ns) : put_null(p); }

static char *put_count(char *p, int64_t v) { return v < 0 ? put_null(p) : put_u64(p, (uint64_t)v); }

static char *put_double(char *p, double v)
{
    if (!(fabs(v) < MAX_EXACT))
        return put_null(p);
    if (v < 0)
        *p++ = '-';
    return put_ns(p, (uint64_t)llrint(fabs(v) * NS_PER_S));
}

/* A whole number, half to even. */
static char *put_rounded(char *p, double v)
{
    return v >= 0 && v < MAX_EXACT ? put_u64(p, (uint64_t)llrint(v)) : put_null(p);
}

static char *put_escaped(char *p, unsigned char c)
{
    static const char letters[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    char letter = c < 0x20 ? letters[c] : (char)c;
    if (c >= 0x80) {
        *p++ = (char)(0xC0 | c >> 6);
        *p++ = (char)(0x80 | (c & 0x3F));
        return p;
    }
    *p++ = '\\';
    if (letter) {
        *p++ = letter;
        return p;
    }
    PUT(p, "u00");
    *p++ = (char)('0' + (c >> 4));
    *p++ = "0123456789abcdef"[c & 15];
    return p;
}

/* Stores up to 16 bytes beyond what it writes. */
static char *put_string(char *p, const unsigned char *s, const unsigned char *end)
{
    *p++ = '"';
    while (s < end) {
        lanes v = lanes_load_within(s, end);
        int plain = lanes_first(lanes_special(v));
        memcpy(p, &v, LANES);
        p += plain;
        s += plain;
        if (s < end && plain < LANES)
            p = put_escaped(p, *s++);
    }
    *p++ = '"';
    return p;
}

static const struct logline_value *named(const struct logline_names *names, uint32_t number)
{
    return number < names->count ? &names->values[number] : &names->other;
}

static char *put_value(char *p, const struct logline_value *v) { return put(p, v->start, v->len); }

/* Request id, and in tracing the ids after a line feed. */
static char *put_ids(char *p, const unsigned char *text, uint32_t len)
{
    const unsigned char *end = text + len;
    const unsigned char *feed = len ? memchr(text, '\n', len) : NULL;
    PUT(p, ",\"id\":");
    p = put_string(p, text, feed ? feed : end);
    PUT(p, ",\"trace\":");
    return feed && feed + 1 < end ? put_string(p, feed + 1, end) : put_null(p);
}

/* Where the request went and why; without a slot it went nowhere. */
static char *put_choice(char *p, const struct logline *l, const struct access_record *r)
{
    PUT(p, ",\"replica\":");
    p = put_value(p, named(&l->replicas, (uint32_t)r->slot));
    if (r->slot < 0)
        return PUT(p, ",\"policy\":null,\"reason\":null,\"matched_tokens\":null,\"score\":null");
    PUT(p, ",\"policy\":");
    p = put_value(p, &l->policy);
    PUT(p, ",\"reason\":");
    p = put_value(p, named(&l->reasons, r->reason));
    PUT(p, ",\"matched_tokens\":");
    p = put_rounded(p, r->matched_tokens);
    PUT(p, ",\"score\":");
    return put_double(p, r->score);
}

static char *put_tokens(char *p, const struct access_record *r)
{
    PUT(p, ",\"estimated_prompt_tokens\":");
    p = put_rounded(p, r->estimated_prompt_tokens);
    PUT(p, ",\"prompt_tokens\":");
    p = put_count(p, r->prompt_tokens);
    PUT(p, ",\"completion_tokens\":");
    p = put_count(p, r->completion_tokens);
    PUT(p, ",\"cached_tokens\":");
    p = put_count(p, r->cached_tokens);
    PUT(p, ",\"max_tokens\":");
    return r->output_limit ? put_u64(p, r->output_limit) : put_null(p);
}

static char *put_times(char *p, const struct access_record *r)
{
    PUT(p, ",\"queue_wait_s\":");
    p = put_known_ns(p, r->queue_wait_ns);
    PUT(p, ",\"ttft_s\":");
    p = put_known_ns(p, r->ttft_ns);
    PUT(p, ",\"tpot_s\":");
    p = r->tpot_s != 0 ? put_double(p, r->tpot_s) : put_null(p);
    PUT(p, ",\"duration_s\":");
    return put_ns(p, r->duration_ns);
}

static uint32_t longest(const struct logline_names *names)
{
    uint32_t len = names->other.len;
    for (uint32_t i = 0; i < names->count; i++)
        len = names->values[i].len > len ? names->values[i].len : len;
    return len;
}

void logline_prepare(struct logline *l)
{
    l->line_bytes = FIXED_BYTES + ESCAPED_BYTES * ACCESS_TEXT_BYTES + l->policy.len;
    l->line_bytes += longest(&l->endpoints);
    l->line_bytes += longest(&l->outcomes);
    l->line_bytes += longest(&l->reasons);
    l->line_bytes += longest(&l->models);
    l->line_bytes += longest(&l->replicas);
}

ptrdiff_t logline_write(const struct logline *l, const void *record, uint32_t len, char *out,
                        size_t room)
{
    struct access_record r;
    char *p = out;
    if (room < l->line_bytes)
        return -1;
    if (len < sizeof r)
        return 0;
    memcpy(&r, record, sizeof r);
    if (r.text_bytes > ACCESS_TEXT_BYTES || len - sizeof r < r.text_bytes)
        return 0;
    PUT(p, "{\"time\":");
    p = put_ns(p, r.end_unix_ns);
    p = put_ids(p, (const unsigned char *)record + sizeof r, r.text_bytes);
    PUT(p, ",\"model\":");
    p = put_value(p, named(&l->models, r.model));
    PUT(p, ",\"endpoint\":");
    p = put_value(p, named(&l->endpoints, r.endpoint));
    p = put_choice(p, l, &r);
    PUT(p, ",\"status\":");
    p = put_u64(p, r.status);
    PUT(p, ",\"outcome\":");
    p = put_value(p, named(&l->outcomes, r.outcome));
    p = put_tokens(p, &r);
    PUT(p, ",\"stream\":");
    if (r.stream)
        PUT(p, "true");
    else
        PUT(p, "false");
    p = put_times(p, &r);
    PUT(p, ",\"bytes_in\":");
    p = put_u64(p, r.bytes_in);
    PUT(p, ",\"bytes_out\":");
    p = put_u64(p, r.bytes_out);
    PUT(p, ",\"retries\":");
    p = put_u64(p, r.retries);
    PUT(p, "}\n");
    return p - out;
}
