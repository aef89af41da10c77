#include "scan.h"

#include "prompt.h"

static const struct json_name FIELD_NAMES[SCAN_FIELDS] = {
    [SCAN_MODEL] = JSON_NAME("model"),
    [SCAN_STREAM] = JSON_NAME("stream"),
    [SCAN_STREAM_OPTIONS] = JSON_NAME("stream_options"),
    [SCAN_INCLUDE_USAGE] = {0, ""}, /* an empty key is never looked up */
    [SCAN_N] = JSON_NAME("n"),
    [SCAN_MAX_TOKENS] = JSON_NAME("max_tokens"),
    [SCAN_MAX_COMPLETION_TOKENS] = JSON_NAME("max_completion_tokens"),
    [SCAN_MAX_OUTPUT_TOKENS] = JSON_NAME("max_output_tokens"),
    [SCAN_PRIORITY] = JSON_NAME("priority"),
    [SCAN_SESSION_ID] = JSON_NAME("session_id"),
    [SCAN_USER] = JSON_NAME("user"),
    [SCAN_CACHE_SALT] = JSON_NAME("cache_salt"),
    [SCAN_LORA] = JSON_NAME("lora_path"),
    [SCAN_INSTRUCTIONS] = JSON_NAME("instructions"),
    [SCAN_SYSTEM] = JSON_NAME("system"),
    [SCAN_TOOLS] = JSON_NAME("tools"),
    [SCAN_FUNCTIONS] = JSON_NAME("functions"),
    [SCAN_MESSAGES] = JSON_NAME("messages"),
    [SCAN_PROMPT] = JSON_NAME("prompt"),
    [SCAN_INPUT] = JSON_NAME("input"),
    [SCAN_TEXT] = JSON_NAME("text"),
    [SCAN_INPUT_IDS] = JSON_NAME("input_ids"),
    [SCAN_QUERY] = JSON_NAME("query"),
    [SCAN_QUERIES] = JSON_NAME("queries"),
    [SCAN_DOCUMENTS] = JSON_NAME("documents"),
    [SCAN_TEXT_1] = JSON_NAME("text_1"),
    [SCAN_TEXT_2] = JSON_NAME("text_2"),
    [SCAN_ITEMS] = JSON_NAME("items"),
};

static const struct json_name INCLUDE_USAGE = JSON_NAME("include_usage");

/* One pass at work. recount: a prompt field came twice, so the counts hold text that does not
 * count. */
struct pass {
    struct json j;
    const unsigned char *body;
    struct text text;
    struct scan *out;
    int recount;
};

static int count_value(struct pass *w, unsigned depth);

static int count_member(struct pass *w, enum prompt_use use, unsigned depth)
{
    struct text *text = NULL;
    switch (use) {
    case PROMPT_ROLE:
    case PROMPT_TEXT: return count_value(w, depth);
    case PROMPT_JSON: text = &w->text; break;
    case PROMPT_IMAGE: w->out->images += json_peek(&w->j) != JSON_NULL; break;
    case PROMPT_AUDIO: w->out->audios += json_peek(&w->j) != JSON_NULL; break;
    case PROMPT_VIDEO: w->out->videos += json_peek(&w->j) != JSON_NULL; break;
    default: break;
    }
    return json_skip(&w->j, text);
}

static int count_object(struct pass *w, unsigned depth)
{
    int more;
    for (more = json_enter(&w->j); more > 0; more = json_next(&w->j, '}')) {
        struct json_string key;
        int found;
        if (json_read_key(&w->j, &key) < 0)
            return -1;
        found = json_find_name(&key, prompt_keys, PROMPT_KEYS);
        if (count_member(w, found < 0 ? PROMPT_NONE : prompt_key_uses[found], depth + 1) < 0)
            return -1;
    }
    return more;
}

/* A message, part, list of those, or text. */
static int count_value(struct pass *w, unsigned depth)
{
    enum json_kind kind = json_peek(&w->j);
    int more;
    if (kind == JSON_STRING)
        return json_skip(&w->j, &w->text);
    if (depth == PROMPT_MAX_DEPTH)
        return json_skip(&w->j, NULL);
    if (kind == JSON_OBJECT)
        return count_object(w, depth);
    if (kind != JSON_ARRAY)
        return json_skip(&w->j, NULL);
    for (more = json_enter(&w->j); more > 0; more = json_next(&w->j, ']'))
        if (count_value(w, depth + 1) < 0)
            return -1;
    return more;
}

/* One level of a field that may hold several sequences: objects are turns, numbers are token ids.
 */
static int count_batch(struct pass *w, enum prompt_use use, unsigned depth)
{
    int more;
    for (more = json_enter(&w->j); more > 0; more = json_next(&w->j, ']')) {
        enum json_kind kind = json_peek(&w->j);
        int done;
        if (kind == JSON_NUMBER) {
            w->out->token_ids++;
            done = json_skip(&w->j, NULL);
        } else {
            w->out->messages += kind == JSON_OBJECT && use == PROMPT_TURNS;
            w->out->prompts +=
                kind >= JSON_STRING && depth == 0 && !(kind == JSON_OBJECT && use == PROMPT_TURNS);
            done = kind == JSON_ARRAY && depth == 0 ? count_batch(w, use, 1) : count_value(w, 1);
        }
        if (done < 0)
            return -1;
    }
    return more;
}

static int count_field(struct pass *w, enum prompt_use use)
{
    enum json_kind kind = json_peek(&w->j);
    if (use == PROMPT_JSON)
        return json_skip(&w->j, &w->text);
    if (kind == JSON_ARRAY && use != PROMPT_TEXT)
        return count_batch(w, use, 0);
    w->out->prompts += kind == JSON_STRING && use == PROMPT_BATCH;
    return count_value(w, 0);
}

static struct scan_field *start_field(struct pass *w, int id)
{
    struct scan_field *f = &w->out->field[id];
    f->start = (size_t)(w->j.p - w->body);
    f->kind = (unsigned char)json_peek(&w->j);
    f->escaped = id >= SCAN_INSTRUCTIONS && f->kind == JSON_STRING;
    return f;
}

static int end_field(struct pass *w, struct scan_field *f)
{
    f->end = (size_t)(w->j.p - w->body);
    return 0;
}

static int read_field(struct pass *w, int id)
{
    struct scan_field *f = start_field(w, id);
    struct json_string string;
    if (f->kind == JSON_STRING) {
        if (json_read_string(&w->j, &string, NULL) < 0)
            return -1;
        f->escaped = (unsigned char)string.escaped;
    } else if (json_skip(&w->j, NULL) < 0) {
        return -1;
    }
    return end_field(w, f);
}

static int read_stream_options(struct pass *w)
{
    struct scan_field *f = start_field(w, SCAN_STREAM_OPTIONS);
    int more;
    w->out->field[SCAN_INCLUDE_USAGE].kind = JSON_ABSENT;
    if (f->kind != JSON_OBJECT)
        return read_field(w, SCAN_STREAM_OPTIONS);
    for (more = json_enter(&w->j); more > 0; more = json_next(&w->j, '}')) {
        struct json_string key;
        if (json_read_key(&w->j, &key) < 0)
            return -1;
        if (json_find_name(&key, &INCLUDE_USAGE, 1) == 0 ? read_field(w, SCAN_INCLUDE_USAGE)
                                                         : json_skip(&w->j, NULL))
            return -1;
    }
    return more < 0 ? -1 : end_field(w, f);
}

static int read_prompt_field(struct pass *w, int id)
{
    struct scan_field *f = &w->out->field[id];
    w->recount |= f->kind != JSON_ABSENT;
    f = start_field(w, id);
    return count_field(w, prompt_field_use(id)) < 0 ? -1 : end_field(w, f);
}

static int read_member(struct pass *w)
{
    struct json_string key;
    int id;
    if (json_read_key(&w->j, &key) < 0)
        return -1;
    id = key.start == key.end ? -1 : json_find_name(&key, FIELD_NAMES, SCAN_FIELDS);
    if (id < 0)
        return json_skip(&w->j, NULL);
    if (id >= SCAN_INSTRUCTIONS)
        return read_prompt_field(w, id);
    return id == SCAN_STREAM_OPTIONS ? read_stream_options(w) : read_field(w, id);
}

/* Counts the fields that won, each once. */
static void recount(struct pass *w)
{
    struct scan *s = w->out;
    s->messages = s->prompts = s->images = s->audios = s->videos = s->token_ids = 0;
    text_init(&w->text);
    for (int id = SCAN_INSTRUCTIONS; id < SCAN_FIELDS; id++) {
        if (s->field[id].kind == JSON_ABSENT)
            continue;
        w->j = (struct json){w->body + s->field[id].start, w->body + s->field[id].end, 1};
        count_field(w, prompt_field_use(id));
    }
}

/* The integer of a number field; fallback if it is none or has more digits than any sensible value.
 */
static int64_t integer(const struct pass *w, int id, int64_t fallback)
{
    const struct scan_field *f = &w->out->field[id];
    const unsigned char *p = w->body + f->start, *end = w->body + f->end;
    int64_t value = 0;
    int negative;
    if (f->kind != JSON_NUMBER || f->end - f->start > 18)
        return fallback;
    negative = *p == '-';
    for (p += negative; p < end; p++) {
        if (*p < '0' || *p > '9')
            return fallback;
        value = value * 10 + (*p - '0');
    }
    return negative ? -value : value;
}

static void finish(struct pass *w)
{
    struct scan *s = w->out;
    if (w->recount)
        recount(w);
    text_flush(&w->text);
    s->counts = w->text.counts;
    s->prompts += s->prompts == 0;
    s->n = integer(w, SCAN_N, -1);
    s->priority = integer(w, SCAN_PRIORITY, 0);
    s->max_tokens = integer(w, SCAN_MAX_TOKENS, -1);
    s->max_tokens = integer(w, SCAN_MAX_OUTPUT_TOKENS, s->max_tokens);
    s->max_tokens = integer(w, SCAN_MAX_COMPLETION_TOKENS, s->max_tokens);
}

int scan_body(const char *body, size_t len, struct scan *out)
{
    struct pass w;
    int more;
    memset(out, 0, sizeof *out);
    w.body = (const unsigned char *)body;
    w.j = (struct json){w.body, w.body + len, 0};
    w.out = out;
    w.recount = 0;
    text_init(&w.text);
    json_space(&w.j);
    if (json_peek(&w.j) != JSON_OBJECT)
        return -1;
    out->object_start = (size_t)(w.j.p - w.body) + 1;
    for (more = json_enter(&w.j); more > 0; more = json_next(&w.j, '}'))
        if (read_member(&w) < 0)
            return -1;
    out->object_end = (size_t)(w.j.p - w.body) - 1;
    json_space(&w.j);
    if (more < 0 || w.j.p != w.j.end)
        return -1;
    finish(&w);
    return 0;
}

ptrdiff_t scan_decode(const char *body, const struct scan_field *field, char *out, size_t cap)
{
    const unsigned char *bytes = (const unsigned char *)body;
    struct json_string s = {bytes + field->start + 1, bytes + field->end - 1, field->escaped};
    return field->kind == JSON_STRING ? json_decode(&s, (unsigned char *)out, cap) : -1;
}
