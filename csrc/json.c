#include "json.h"

#define LONGEST_NAME 32

void json_space(struct json *j)
{
    const unsigned char *p = j->p;
    while (p < j->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    j->p = p;
}

enum json_kind json_peek(const struct json *j)
{
    if (j->p == j->end)
        return JSON_ABSENT;
    switch (*j->p) {
    case '"': return JSON_STRING;
    case '{': return JSON_OBJECT;
    case '[': return JSON_ARRAY;
    case 't': return JSON_TRUE;
    case 'f': return JSON_FALSE;
    case 'n': return JSON_NULL;
    case '-': return JSON_NUMBER;
    default: return *j->p >= '0' && *j->p <= '9' ? JSON_NUMBER : JSON_ABSENT;
    }
}

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
        size_t left = (size_t)(end - p);
        int n =
            lanes_first(lanes_special(left >= LANES ? lanes_load(p) : lanes_load_tail(p, left)));
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
    static const unsigned char values[256] = {
        ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
        ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
    };
    uint32_t high, low;
    if (end - p < 2)
        return NULL;
    *code_point = values[p[1]];
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
        p = t ? text_plain(t, p, end) : plain(p, end);
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

static const unsigned char *digits(const unsigned char *p, const unsigned char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

static int read_number(struct json *j)
{
    const unsigned char *p = j->p, *end = j->end, *from;
    if (*p == '-')
        p++;
    from = p;
    p = digits(p, end);
    if (p == from || (*from == '0' && p - from > 1))
        return -1;
    if (p < end && *p == '.') {
        from = ++p;
        p = digits(p, end);
        if (p == from)
            return -1;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        from = p;
        p = digits(p, end);
        if (p == from)
            return -1;
    }
    j->p = p;
    return 0;
}

static int read_literal(struct json *j, const char *text, size_t len)
{
    if ((size_t)(j->end - j->p) < len || memcmp(j->p, text, len) != 0)
        return -1;
    j->p += len;
    return 0;
}

static int read_scalar(struct json *j, struct text *t)
{
    const unsigned char *from = j->p;
    struct json_string ignored;
    int done = -1;
    switch (json_peek(j)) {
    case JSON_STRING: return json_read_string(j, &ignored, t);
    case JSON_NUMBER: done = read_number(j); break;
    case JSON_TRUE: done = read_literal(j, "true", 4); break;
    case JSON_FALSE: done = read_literal(j, "false", 5); break;
    case JSON_NULL: done = read_literal(j, "null", 4); break;
    default: break;
    }
    if (done == 0 && t) {
        text_begin(t);
        text_plain(t, from, j->p);
    }
    return done;
}

int json_enter(struct json *j)
{
    unsigned char closer = *j->p == '{' ? '}' : ']';
    if (j->depth == JSON_MAX_DEPTH)
        return -1;
    j->p++;
    json_space(j);
    if (j->p == j->end)
        return -1;
    if (*j->p == closer) {
        j->p++;
        return 0;
    }
    j->depth++;
    return 1;
}

int json_next(struct json *j, unsigned char closer)
{
    json_space(j);
    if (j->p == j->end)
        return -1;
    if (*j->p == closer) {
        j->p++;
        j->depth--;
        return 0;
    }
    if (*j->p != ',')
        return -1;
    j->p++;
    json_space(j);
    return 1;
}

static int read_key(struct json *j, struct json_string *key, struct text *t)
{
    if (j->p == j->end || *j->p != '"' || json_read_string(j, key, t) < 0)
        return -1;
    json_space(j);
    if (j->p == j->end || *j->p != ':')
        return -1;
    j->p++;
    json_space(j);
    return 0;
}

int json_read_key(struct json *j, struct json_string *key) { return read_key(j, key, NULL); }

/* Iterative, because input decides the depth and the C stack of an embedding thread may be small.
 * closers[d] closes the container opened at depth d. */
static int skip_container(struct json *j, struct text *t)
{
    unsigned char closers[JSON_MAX_DEPTH];
    struct json_string key;
    unsigned base = j->depth;
    int more = 1;
    for (;;) {
        enum json_kind kind = json_peek(j);
        if (kind == JSON_OBJECT || kind == JSON_ARRAY) {
            unsigned depth = j->depth;
            if (t)
                text_char(t, *j->p);
            if ((more = json_enter(j)) < 0)
                return -1;
            if (more)
                closers[depth] = kind == JSON_OBJECT ? '}' : ']';
        } else {
            more = 0;
            if (read_scalar(j, t) < 0)
                return -1;
        }
        while (!more) {
            if (t)
                text_char(t, ',');
            if (j->depth == base)
                return 0;
            if ((more = json_next(j, closers[j->depth - 1])) < 0)
                return -1;
        }
        if (closers[j->depth - 1] == '}' && read_key(j, &key, t) < 0)
            return -1;
    }
}

int json_skip(struct json *j, struct text *t)
{
    enum json_kind kind = json_peek(j);
    return kind == JSON_OBJECT || kind == JSON_ARRAY ? skip_container(j, t) : read_scalar(j, t);
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
