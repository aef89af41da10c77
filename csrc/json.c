#include "json.h"

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
        text_plain(t, from, j->p, &ignored.escaped);
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

const unsigned char *json_end_of_run(const unsigned char *p, const unsigned char *end)
{
    for (; p < end; p += LANES) {
        lanes v = lanes_load_within(p, end);
        int n = lanes_first((v == '"') | (v == '\\'));
        if (n < LANES)
            return p + n;
    }
    return end;
}

static const unsigned char *end_of_string(const unsigned char *p, const unsigned char *end)
{
    for (p++; p < end; p += 2) {
        p = json_end_of_run(p, end);
        if (p < end && *p == '"')
            return p + 1;
    }
    return end;
}

static const unsigned char *end_of_container(const unsigned char *p, const unsigned char *end)
{
    size_t depth = 0;
    while (p < end) {
        lanes v = lanes_load_within(p, end);
        lanes folded = v | 0x20; /* '[' onto '{', ']' onto '}' */
        int n = lanes_first((v == '"') | (folded == '{') | (folded == '}'));
        if (n == LANES) {
            p += LANES;
            continue;
        }
        p += n;
        if (*p == '"')
            p = end_of_string(p, end);
        else if ((*p++ | 0x20) == '{')
            depth++;
        else if (--depth == 0)
            return p;
    }
    return end;
}

void json_skip_valid(struct json *j)
{
    switch (json_peek(j)) {
    case JSON_STRING: j->p = end_of_string(j->p, j->end); break;
    case JSON_OBJECT:
    case JSON_ARRAY: j->p = end_of_container(j->p, j->end); break;
    default:
        while (j->p < j->end && *j->p > ' ' && *j->p != ',' && *j->p != ']' && *j->p != '}')
            j->p++;
    }
}
