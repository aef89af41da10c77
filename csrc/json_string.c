#include "json.h"

/* Longer than any name that is looked for. */
#define LONGEST_NAME 32

static const unsigned char *plain(const unsigned char *p, const unsigned char *end)
{
    while (end - p >= 4 * LANES) {
        lanes a = lanes_special(lanes_load(p)), b = lanes_special(lanes_load(p + LANES));
        lanes c = lanes_special(lanes_load(p + 2 * LANES)),
              d = lanes_special(lanes_load(p + 3 * LANES));
        if (lanes_first(a | b | c | d) < LANES)
            break;
        p += 4 * LANES;
    }
    for (;;) {
        int n = lanes_first(lanes_special(lanes_load_within(p, end)));
        if (n < LANES)
            return p + n;
        p += LANES;
    }
}

static int hex4(const unsigned char *p, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t c = p[i], lower = c | 0x20;
        if (c - '0' < 10)
            value = value << 4 | (c - '0');
        else if (lower - 'a' < 6)
            value = value << 4 | (lower - 'a' + 10);
        else
            return -1;
    }
    *out = value;
    return 0;
}

const unsigned char *json_unescape(const unsigned char *p, const unsigned char *end,
                                   uint32_t *code_point)
{
    uint32_t high, low;
    if (end - p < 2)
        return NULL;
    *code_point = text_escapes[p[1]];
    if (*code_point)
        return p + 2;
    if (p[1] != 'u' || end - p < 6 || hex4(p + 2, &high) < 0)
        return NULL;
    *code_point = high;
    p += 6;
    if (high - 0xD800 >= 0x400 || end - p < 6 || p[0] != '\\' || p[1] != 'u' ||
        hex4(p + 2, &low) < 0 || low - 0xDC00 >= 0x400)
        return p;
    *code_point = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return p + 6;
}

static int continues(unsigned char c) { return (c & 0xC0) == 0x80; }

/* One multi-byte character, by the table of well-formed sequences of the Unicode standard (table
 * 3-7). */
static const unsigned char *utf8(const unsigned char *p, const unsigned char *end,
                                 uint32_t *code_point)
{
    ptrdiff_t left = end - p;
    uint32_t c;
    if (p[0] < 0xE0) {
        if (p[0] < 0xC2 || left < 2 || !continues(p[1]))
            return NULL;
        *code_point = (p[0] & 0x1FU) << 6 | (p[1] & 0x3FU);
        return p + 2;
    }
    if (p[0] < 0xF0) {
        if (left < 3 || !continues(p[1]) || !continues(p[2]))
            return NULL;
        c = (p[0] & 0xFU) << 12 | (p[1] & 0x3FU) << 6 | (p[2] & 0x3FU);
        if (c < 0x800 || c - 0xD800 < 0x800)
            return NULL;
        *code_point = c;
        return p + 3;
    }
    if (p[0] > 0xF4 || left < 4 || !continues(p[1]) || !continues(p[2]) || !continues(p[3]))
        return NULL;
    c = (p[0] & 7U) << 18 | (p[1] & 0x3FU) << 12 | (p[2] & 0x3FU) << 6 | (p[3] & 0x3FU);
    if (c - 0x10000 >= 0x100000)
        return NULL;
    *code_point = c;
    return p + 4;
}

int json_read_string(struct json *j, struct json_string *out, struct text *t)
{
    const unsigned char *p = j->p + 1, *end = j->end;
    uint32_t c;
    out->start = p;
    out->escaped = 0;
    if (t)
        text_begin(t);
    for (;;) {
        p = t ? text_plain(t, p, end, &out->escaped) : plain(p, end);
        if (p == end || (*p < 0x20))
            return -1;
        if (*p == '"')
            break;
        if (*p == '\\') {
            out->escaped = 1;
            if (!(p = json_unescape(p, end, &c)))
                return -1;
            if (t)
                text_char(t, c);
        }
        while (p < end && *p >= 0x80) {
            if (!(p = utf8(p, end, &c)))
                return -1;
            if (t)
                text_char(t, c);
        }
    }
    out->end = p;
    j->p = p + 1;
    return 0;
}

int json_encode(uint32_t c, unsigned char *out)
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (unsigned char)(0xC0 | c >> 6);
        out[1] = (unsigned char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (unsigned char)(0xE0 | c >> 12);
        out[1] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (unsigned char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | c >> 18);
    out[1] = (unsigned char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (unsigned char)(0x80 | (c & 0x3F));
    return 4;
}

ptrdiff_t json_decode(const struct json_string *s, unsigned char *out, size_t cap)
{
    const unsigned char *p = s->start;
    unsigned char bytes[4];
    size_t used = 0;
    uint32_t c;
    while (p < s->end) {
        int len = 1;
        bytes[0] = *p;
        if (*p == '\\') {
            if (!(p = json_unescape(p, s->end, &c)) || c - 0xD800 < 0x800)
                return -1;
            len = json_encode(c, bytes);
        } else {
            p++;
        }
        if (cap - used < (size_t)len)
            return -1;
        memcpy(out + used, bytes, (size_t)len);
        used += (size_t)len;
    }
    return (ptrdiff_t)used;
}

int json_find_name(const struct json_string *s, const struct json_name *names, int count)
{
    unsigned char decoded[LONGEST_NAME];
    const unsigned char *text = s->start;
    ptrdiff_t len = s->end - s->start;
    if (s->escaped) {
        len = json_decode(s, decoded, sizeof decoded);
        text = decoded;
    }
    for (int i = 0; i < count; i++)
        if (names[i].len == len && memcmp(names[i].name, text, (size_t)len) == 0)
            return i;
    return -1;
}
