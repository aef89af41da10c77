#include "answer_facts.h"
#include "json.h"

/* From IN_KEY on: inside of something that takes more than one byte. */
enum state {
    AT_START,
    AT_KEY,
    AT_COLON,
    AT_VALUE,
    AT_ELEMENT,
    AFTER,
    DONE,
    IN_KEY,
    IN_STRING,
    IN_SCALAR,
    SKIPPING,
    SKIPPING_STRING,
};

void answer_init(struct answer *a)
{
    memset(a, 0, sizeof *a);
    a->usage = (struct answer_usage){-1, -1, -1};
}

void answer_begin(struct answer *a)
{
    a->content = a->has_text = a->has_choices = a->has_choice = a->has_usage = a->error = a->kind =
        0;
    a->going_away = a->error_text_bytes = 0;
    a->error_code = 0;
    a->state = AT_START;
    a->escape = a->depth = 0;
}

static void keep_token(struct answer *a, const unsigned char *p, const unsigned char *end)
{
    size_t room = ANSWER_TOKEN_BYTES - a->token_bytes, len = (size_t)(end - p);
    len = len < room ? len : room;
    memcpy(a->token + a->token_bytes, p, len);
    a->token_bytes += (unsigned char)len;
}

static enum state push(struct answer *a, enum context context)
{
    if (context == IGNORED || a->depth == ANSWER_MAX_DEPTH) {
        a->skip_depth = 1;
        return SKIPPING;
    }
    a->contexts[a->depth++] = (unsigned char)context;
    a->key = NO_KEY;
    return context == LIST ? AT_ELEMENT : AT_KEY;
}

static enum state pop(struct answer *a)
{
    a->depth--;
    return a->depth ? AFTER : DONE;
}
/* The closing quote, or NULL if it lies beyond end. A backslash takes the byte after it along, even
 * of the next piece. */
static const unsigned char *find_quote(struct answer *a, const unsigned char *p,
                                       const unsigned char *end)
{
    if (a->escape && p < end) {
        a->escape = 0;
        p++;
    }
    while (p < end) {
        if (end - p >= LANES) {
            lanes v = lanes_load(p);
            int n = lanes_first((v == '"') | (v == '\\'));
            if (n == LANES) {
                p += LANES;
                continue;
            }
            p += n;
        }
        if (*p == '"')
            return p;
        if (*p == '\\') {
            a->escaped = 1;
            if (++p == end) {
                a->escape = 1;
                break;
            }
        }
        p++;
    }
    return NULL;
}

static void end_key(struct answer *a, const unsigned char *p, const unsigned char *end)
{
    const char *text = (const char *)p;
    size_t len = (size_t)(end - p);
    unsigned char decoded[ANSWER_TOKEN_BYTES];
    if (a->token_bytes || a->escaped) {
        keep_token(a, p, end);
        text = a->token;
        len = a->token_bytes;
    }
    if (a->escaped) {
        const unsigned char *raw = (const unsigned char *)a->token;
        struct json_string s = {raw, raw + a->token_bytes, 1};
        ptrdiff_t size = json_decode(&s, decoded, sizeof decoded);
        text = (const char *)decoded;
        len = size < 0 ? 0 : (size_t)size;
    }
    a->key = (unsigned char)answer_key_of(text, len);
}

/* Over ignored containers: only quotes and brackets count. Returns where a string starts or the
 * outermost one ends. */
static const unsigned char *skip(struct answer *a, const unsigned char *p, const unsigned char *end)
{
    while (p < end) {
        if (end - p >= LANES) {
            lanes v = lanes_load(p), folded = v | 0x20;
            int n = lanes_first((v == '"') | (folded == '{') | (folded == '}'));
            if (n == LANES) {
                p += LANES;
                continue;
            }
            p += n;
        }
        if (*p == '"')
            return p;
        if ((*p | 0x20) == '{')
            a->skip_depth++;
        else if ((*p | 0x20) == '}' && --a->skip_depth == 0)
            return p;
        p++;
    }
    return end;
}

enum { SPACE_BYTE = 1, END_BYTE = 2 };

static const unsigned char byte_classes[256] = {
    [' '] = SPACE_BYTE, ['\n'] = SPACE_BYTE, ['\r'] = SPACE_BYTE, ['\t'] = SPACE_BYTE,
    [','] = END_BYTE,   ['}'] = END_BYTE,    [']'] = END_BYTE,
};

/* One byte at which a value, key or separator is expected. */
static enum state step(struct answer *a, enum state state, unsigned char c)
{
    switch (state) {
    case AT_START: return c == '{' ? push(a, TOP) : DONE;
    case AT_KEY:
        a->token_bytes = a->escaped = 0;
        return c == '"' ? IN_KEY : c == '}' ? pop(a) : DONE;
    case AT_COLON: return c == ':' ? AT_VALUE : DONE;
    case AT_ELEMENT:
        if (c == ']')
            return pop(a);
        /* fallthrough */
    case AT_VALUE:
        a->token_bytes = a->escaped = 0;
        if (c == '"')
            return IN_STRING;
        if (c == '{' || c == '[')
            return push(a, answer_enter(a, c == '['));
        return byte_classes[c] || c == ':' ? DONE : IN_SCALAR;
    case AFTER:
        if (c == ',')
            return a->contexts[a->depth - 1] == LIST ? AT_VALUE : AT_KEY;
        return c == '}' || c == ']' ? pop(a) : DONE;
    default: return state;
    }
}

/* The readers below take what lies before end of a key, value or skipped container that goes on at
 * p; *next is the state behind it, untouched if that lies beyond end. */
static const unsigned char *read_key(struct answer *a, const unsigned char *p,
                                     const unsigned char *end, enum state *next)
{
    const unsigned char *stop = find_quote(a, p, end);
    if (!stop) {
        keep_token(a, p, end);
        return end;
    }
    end_key(a, p, stop++);
    *next = AT_COLON;
    if (stop < end && *stop == ':') {
        *next = AT_VALUE;
        stop++;
    }
    return stop;
}

static const unsigned char *read_string(struct answer *a, const unsigned char *p,
                                        const unsigned char *end, enum state *next)
{
    const unsigned char *stop = find_quote(a, p, end);
    if (answer_is_read(a)) {
        if (answer_wants_string(a))
            keep_token(a, p, stop ? stop : end);
        if (stop)
            answer_value(a, 1);
    }
    if (!stop)
        return end;
    *next = AFTER;
    return stop + 1;
}

static const unsigned char *read_scalar(struct answer *a, const unsigned char *p,
                                        const unsigned char *end, enum state *next)
{
    const unsigned char *stop = p;
    while (stop < end && !byte_classes[*stop])
        stop++;
    if (a->key != NO_KEY ||
        !a->token_bytes) /* of others the first piece tells null from the rest */
        keep_token(a, p, stop);
    if (stop == end)
        return end;
    if (answer_is_read(a) && a->token[0] != 'n')
        answer_value(a, 0);
    *next = AFTER;
    return stop;
}

static const unsigned char *read_skipped(struct answer *a, const unsigned char *p,
                                         const unsigned char *end, enum state *next)
{
    const unsigned char *stop = skip(a, p, end);
    if (stop == end)
        return end;
    *next = *stop == '"' ? SKIPPING_STRING : AFTER;
    return stop + 1;
}

static const unsigned char *read_skipped_string(struct answer *a, const unsigned char *p,
                                                const unsigned char *end, enum state *next)
{
    const unsigned char *stop = find_quote(a, p, end);
    if (!stop)
        return end;
    *next = SKIPPING;
    return stop + 1;
}

void answer_feed(struct answer *a, const char *bytes, size_t len)
{
    const unsigned char *p = (const unsigned char *)bytes, *end = p + len;
    enum state state = a->state;
    while (p < end && state != DONE) {
        switch (state) {
        case IN_KEY: p = read_key(a, p, end, &state); break;
        case IN_STRING: p = read_string(a, p, end, &state); break;
        case IN_SCALAR: p = read_scalar(a, p, end, &state); break;
        case SKIPPING: p = read_skipped(a, p, end, &state); break;
        case SKIPPING_STRING: p = read_skipped_string(a, p, end, &state); break;
        default:
            if (byte_classes[*p] != SPACE_BYTE)
                state = step(a, state, *p);
            p += state != IN_SCALAR;
        }
    }
    a->state = (unsigned char)state;
}
