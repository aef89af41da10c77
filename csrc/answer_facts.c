#include "answer_facts.h"

#include "json.h"

#define IS(text) (memcmp(p, text, sizeof(text) - 1) == 0)

enum key answer_key_of(const char *p, size_t len)
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
    if (!starts_with(name, len, "response."))
        return ANSWER_UNNAMED;
    /* what is done has been sent before, piece by piece */
    return memcmp(name + len - 5, ".done", 5) == 0 ? ANSWER_OTHER : ANSWER_CONTENT;
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

static void finish(struct answer *a)
{
    a->content = 1;
    a->finishes++;
    a->aborted |= token_is(a, "abort");
}

/* How vLLM's 500 begins once it has been told to stop; its /health still says 200 then. */
static const char SHUTDOWN[] = "cannot schedule new futures";

static void read_error(struct answer *a, int is_string)
{
    int64_t number = token_number(a);
    if (a->key == KEY_CODE && number >= 0 && number <= INT32_MAX) {
        a->error_code = (int32_t)number;
    } else if (is_string && (a->key == KEY_CODE || (a->key == KEY_TYPE && !a->error_text_bytes))) {
        memcpy(a->error_text, a->token, a->token_bytes);
        a->error_text_bytes = a->token_bytes;
    } else if (is_string && a->key == KEY_MESSAGE) {
        a->going_away = starts_with(a->token, a->token_bytes, SHUTDOWN);
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
        a->has_text |= is_string;
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

void answer_value(struct answer *a, int is_string)
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

enum context answer_enter(struct answer *a, int is_array)
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
int answer_wants_string(const struct answer *a)
{
    return a->key == KEY_TYPE || a->key == KEY_FINISH_REASON || a->key == KEY_STOP_REASON ||
           a->key == KEY_CODE || a->key == KEY_STATUS || a->key == KEY_OBJECT ||
           a->key == KEY_MESSAGE;
}
