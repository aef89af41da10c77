#include "answer.h"

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

/* Where the tokenizer stands; only LIST is an array. */
enum context { TOP, LIST, CHOICE, DELTA, EVENT_DELTA, INNER, USAGE, DETAILS, ERROR, IGNORED };

enum key {
    NO_KEY,
    KEY_TYPE,
    KEY_TEXT,
    KEY_CODE,
    KEY_USAGE,
    KEY_ERROR,
    KEY_DELTA,
    KEY_STATUS,
    KEY_OBJECT,
    KEY_CHOICES,
    KEY_MESSAGE,
    KEY_RESPONSE,
    KEY_META_INFO,
    KEY_STOP_REASON,
    KEY_FINISH_REASON,
    KEY_PROMPT,
    KEY_COMPLETION,
    KEY_CACHED,
    KEY_DETAILS,
};

#define IS(text) (memcmp(p, text, sizeof(text) - 1) == 0)

static enum key key_of(const char *p, size_t len)
{
    switch (len) {
    case 4: return IS("type") ? KEY_TYPE : IS("text") ? KEY_TEXT : IS("code") ? KEY_CODE : NO_KEY;
    case 5:
        return IS("delta") ? KEY_DELTA : IS("usage") ? KEY_USAGE : IS("error") ? KEY_ERROR : NO_KEY;
    case 6: return IS("status") ? KEY_STATUS : IS("object") ? KEY_OBJECT : NO_KEY;
    case 7: return IS("choices") ? KEY_CHOICES : IS("message") ? KEY_MESSAGE : NO_KEY;
    case 8: return IS("response") ? KEY_RESPONSE : NO_KEY;
    case 9: return IS("meta_info") ? KEY_META_INFO : NO_KEY;
    case 11: return IS("stop_reason") ? KEY_STOP_REASON : NO_KEY;
    case 12: return IS("input_tokens") ? KEY_PROMPT : NO_KEY;
    case 13:
        return IS("finish_reason")   ? KEY_FINISH_REASON
               : IS("prompt_tokens") ? KEY_PROMPT
               : IS("output_tokens") ? KEY_COMPLETION
               : IS("cached_tokens") ? KEY_CACHED
                                     : NO_KEY;
    case 17: return IS("completion_tokens") ? KEY_COMPLETION : NO_KEY;
    case 20: return IS("input_tokens_details") ? KEY_DETAILS : NO_KEY;
    case 21: return IS("prompt_tokens_details") ? KEY_DETAILS : NO_KEY;
    case 23: return IS("cache_read_input_tokens") ? KEY_CACHED : NO_KEY;
    default: return NO_KEY;
    }
}

static int starts_with(const char *text, size_t len, const char *start)
{
    size_t n = strlen(start);
    return len >= n && memcmp(text, start, n) == 0;
}

enum answer_kind answer_kind_of(const char *name, size_t len)
{
    static const struct {
        struct json_name name;
        enum answer_kind kind;
    } kinds[] = {
        {JSON_NAME("content_block_delta"), ANSWER_CONTENT},
        {JSON_NAME("response.created"), ANSWER_PREAMBLE},
        {JSON_NAME("response.in_progress"), ANSWER_PREAMBLE},
        {JSON_NAME("response.queued"), ANSWER_PREAMBLE},
        {JSON_NAME("response.completed"), ANSWER_END},
        {JSON_NAME("response.incomplete"), ANSWER_END},
        {JSON_NAME("response.failed"), ANSWER_FAILED},
        {JSON_NAME("message_start"), ANSWER_PREAMBLE},
        {JSON_NAME("ping"), ANSWER_PREAMBLE},
        {JSON_NAME("content_block_start"), ANSWER_CONTENT},
        {JSON_NAME("content_block_stop"), ANSWER_OTHER},
        {JSON_NAME("message_delta"), ANSWER_OTHER},
        {JSON_NAME("message_stop"), ANSWER_END},
        {JSON_NAME("error"), ANSWER_ERROR},
    };
    if (len == 0)
        return ANSWER_UNNAMED;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].name.len == len && memcmp(kinds[i].name.name, name, len) == 0)
            return kinds[i].kind;
    return starts_with(name, len, "response.") ? ANSWER_CONTENT : ANSWER_UNNAMED;
}

void answer_init(struct answer *a)
{
    memset(a, 0, sizeof *a);
    a->usage = (struct answer_usage){-1, -1, -1};
}

void answer_begin(struct answer *a)
{
    a->content = a->has_choices = a->has_choice = a->has_usage = a->error = a->kind = 0;
    a->error_text_bytes = 0;
    a->error_code = 0;
    a->state = AT_START;
    a->escape = a->depth = 0;
}

int answer_is_error(const struct answer *a)
{
    return a->kind == ANSWER_ERROR || a->kind == ANSWER_FAILED || (a->error && !a->has_choices);
}

int answer_is_refusal(const struct answer *a)
{
    return answer_is_error(a) && (a->error_code == 503 || a->error_code == 429 ||
                                  starts_with(a->error_text, a->error_text_bytes, "overloaded") ||
                                  starts_with(a->error_text, a->error_text_bytes, "rate_limit"));
}

static int token_is(const struct answer *a, const char *text)
{
    return strlen(text) == a->token_bytes && memcmp(a->token, text, a->token_bytes) == 0;
}

/* The token as a number, -1 if it is none. */
static int64_t token_number(const struct answer *a)
{
    int64_t value = 0;
    if (a->token_bytes == 0 || a->token_bytes > 18)
        return -1;
    for (unsigned i = 0; i < a->token_bytes; i++) {
        if (a->token[i] < '0' || a->token[i] > '9')
            return -1;
        value = value * 10 + (a->token[i] - '0');
    }
    return value;
}

static void keep_token(struct answer *a, const unsigned char *p, const unsigned char *end)
{
    size_t room = ANSWER_TOKEN_BYTES - a->token_bytes, len = (size_t)(end - p);
    len = len < room ? len : room;
    memcpy(a->token + a->token_bytes, p, len);
    a->token_bytes += (unsigned char)len;
}

static void finish(struct answer *a)
{
    a->content = 1;
    a->finishes++;
    a->aborted |= token_is(a, "abort");
}

static void read_error(struct answer *a, int is_string)
{
    int64_t number = token_number(a);
    if (a->key == KEY_CODE && number >= 0 && number <= INT32_MAX)
        a->error_code = (int32_t)number;
    else if (is_string && (a->key == KEY_CODE || (a->key == KEY_TYPE && !a->error_text_bytes))) {
        memcpy(a->error_text, a->token, a->token_bytes);
        a->error_text_bytes = a->token_bytes;
    }
}

static void read_usage(struct answer *a)
{
    int64_t number = token_number(a);
    if (number < 0)
        return;
    a->has_usage = 1;
    if (a->key == KEY_PROMPT)
        a->usage.prompt_tokens = number;
    else if (a->key == KEY_COMPLETION)
        a->usage.completion_tokens = number;
    else if (a->key == KEY_CACHED)
        a->usage.cached_tokens = number;
}

/* How a response (of the responses dialect) ended. */
static void read_status(struct answer *a)
{
    if (a->key != KEY_STATUS)
        return;
    if (token_is(a, "completed") || token_is(a, "incomplete"))
        finish(a);
    else if (token_is(a, "failed"))
        a->kind = ANSWER_FAILED;
}

static void read_top(struct answer *a, int is_string)
{
    if (a->key == KEY_ERROR)
        a->error = 1;
    else if (a->key == KEY_TEXT)
        a->content |= is_string;
    else if (a->key == KEY_STOP_REASON && is_string)
        finish(a);
    else if (a->key == KEY_TYPE && is_string)
        a->kind = (unsigned char)answer_kind_of(a->token, a->token_bytes);
    else if (a->key == KEY_OBJECT && token_is(a, "error"))
        a->kind = ANSWER_ERROR;
    else if (a->key == KEY_CODE)
        read_error(a, is_string);
    else
        read_status(a);
}

/* A scalar value that is not null, in the token (strings: if wanted). */
static void read_value(struct answer *a, int is_string)
{
    enum context context = a->contexts[a->depth - 1];
    if (a->key == NO_KEY && context != DELTA)
        return;
    switch (context) {
    case TOP: read_top(a, is_string); break;
    case CHOICE:
        if (a->key == KEY_FINISH_REASON && is_string)
            finish(a);
        else if (a->key == KEY_TEXT)
            a->content |= is_string;
        break;
    case DELTA: a->content = 1; break;
    case EVENT_DELTA:
        if (a->key == KEY_STOP_REASON && is_string)
            finish(a);
        break;
    case INNER:
        a->error |= a->key == KEY_ERROR;
        read_status(a);
        break;
    case USAGE:
    case DETAILS: read_usage(a); break;
    case ERROR: read_error(a, is_string); break;
    default: break;
    }
}

/* The context of the container that starts as the value of the current key. */
static enum context enter(struct answer *a, int is_array)
{
    enum context outer = a->contexts[a->depth - 1];
    if (is_array) {
        a->content |= outer == DELTA;
        a->has_choices |= outer == TOP && a->key == KEY_CHOICES;
        return outer == TOP && a->key == KEY_CHOICES ? LIST : IGNORED;
    }
    switch (outer) {
    case LIST: a->has_choice = 1; return CHOICE;
    case CHOICE: return a->key == KEY_DELTA || a->key == KEY_MESSAGE ? DELTA : IGNORED;
    case DELTA: a->content = 1; return IGNORED;
    case USAGE: return a->key == KEY_DETAILS ? DETAILS : IGNORED;
    case TOP:
        if (a->key == KEY_DELTA)
            return EVENT_DELTA;
        if (a->key == KEY_MESSAGE || a->key == KEY_RESPONSE)
            return INNER;
        if (a->key == KEY_META_INFO)
            return USAGE;
        break;
    case INNER: break;
    default: return IGNORED;
    }
    if (a->key == KEY_USAGE)
        return USAGE;
    a->error |= a->key == KEY_ERROR;
    return a->key == KEY_ERROR ? ERROR : IGNORED;
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

static int wants_string(const struct answer *a)
{
    return a->key == KEY_TYPE || a->key == KEY_FINISH_REASON || a->key == KEY_STOP_REASON ||
           a->key == KEY_CODE || a->key == KEY_STATUS || a->key == KEY_OBJECT;
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
    a->key = (unsigned char)key_of(text, len);
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
            return push(a, enter(a, c == '['));
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
    if (wants_string(a))
        keep_token(a, p, stop ? stop : end);
    if (!stop)
        return end;
    read_value(a, 1);
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
    if (a->token[0] != 'n')
        read_value(a, 0);
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
