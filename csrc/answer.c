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
        const char *name;
        enum answer_kind kind;
    } kinds[] = {
        {"content_block_delta", ANSWER_CONTENT},
        {"response.created", ANSWER_PREAMBLE},
        {"response.in_progress", ANSWER_PREAMBLE},
        {"response.queued", ANSWER_PREAMBLE},
        {"response.completed", ANSWER_END},
        {"response.incomplete", ANSWER_END},
        {"response.failed", ANSWER_FAILED},
        {"message_start", ANSWER_PREAMBLE},
        {"ping", ANSWER_PREAMBLE},
        {"content_block_start", ANSWER_CONTENT},
        {"content_block_stop", ANSWER_OTHER},
        {"message_delta", ANSWER_OTHER},
        {"message_stop", ANSWER_END},
        {"error", ANSWER_ERROR},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == len && memcmp(kinds[i].name, name, len) == 0)
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
    switch (a->contexts[a->depth - 1]) {
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

static int is_space(unsigned char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static int ends_scalar(unsigned char c) { return c == ',' || c == '}' || c == ']' || is_space(c); }

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
        return ends_scalar(c) || c == ':' ? DONE : IN_SCALAR;
    case AFTER:
        if (c == ',')
            return a->contexts[a->depth - 1] == LIST ? AT_VALUE : AT_KEY;
        return c == '}' || c == ']' ? pop(a) : DONE;
    default: return state;
    }
}

/* Strings, scalars and skipped values: takes what of them lies before end, *next is the state
 * behind it. */
static const unsigned char *pass_over(struct answer *a, enum state state, const unsigned char *p,
                                      const unsigned char *end, enum state *next)
{
    const unsigned char *stop = p;
    if (state == SKIPPING) {
        stop = skip(a, p, end);
        if (stop < end)
            *next = *stop++ == '"' ? SKIPPING_STRING : AFTER;
        return stop;
    }
    if (state == IN_SCALAR) {
        while (stop < end && !ends_scalar(*stop))
            stop++;
        keep_token(a, p, stop);
        if (stop == end)
            return end;
        if (a->token[0] != 'n')
            read_value(a, 0);
        *next = AFTER;
        return stop;
    }
    stop = find_quote(a, p, end);
    if (state == IN_KEY) {
        if (!stop) {
            keep_token(a, p, end);
            return end;
        }
        end_key(a, p, stop);
        *next = AT_COLON;
        return stop + 1;
    }
    if (state == IN_STRING && wants_string(a))
        keep_token(a, p, stop ? stop : end);
    if (!stop)
        return end;
    if (state == IN_STRING)
        read_value(a, 1);
    *next = state == IN_STRING ? AFTER : SKIPPING;
    return stop + 1;
}

void answer_feed(struct answer *a, const char *bytes, size_t len)
{
    const unsigned char *p = (const unsigned char *)bytes, *end = p + len;
    enum state state = a->state;
    while (p < end && state != DONE) {
        if (state >= IN_KEY) {
            p = pass_over(a, state, p, end, &state);
            continue;
        }
        if (!is_space(*p))
            state = step(a, state, *p);
        p += state != IN_SCALAR;
    }
    a->state = (unsigned char)state;
}
