#include "sse.h"

#include <string.h>

enum field { FIELD_NAME, FIELD_DATA, FIELD_EVENT, FIELD_OTHER };

static const char DONE_MARK[] = "[DONE]";
#define DONE_BYTES (sizeof DONE_MARK - 1)

void sse_init(struct sse *s)
{
    memset(s, 0, sizeof *s);
    answer_init(&s->answer);
}

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

static unsigned char classify(struct sse *s)
{
    struct answer *a = &s->answer;
    unsigned class;
    if (!a->kind)
        a->kind = (unsigned char)answer_kind_of(s->name, s->name_bytes);
    class = a->content || a->kind == ANSWER_CONTENT || (a->has_text && a->kind == ANSWER_UNNAMED)
                ? SSE_CONTENT
                : 0;
    if (!s->has_data)
        return SSE_COMMENT;
    if (s->mark_bytes == DONE_BYTES && memcmp(s->mark, DONE_MARK, DONE_BYTES) == 0)
        return SSE_END;
    if (a->kind == ANSWER_PREAMBLE)
        return SSE_PREAMBLE;
    if (a->kind == ANSWER_END || a->kind == ANSWER_FAILED)
        class |= SSE_END;
    if (answer_is_error(a))
        return (unsigned char)((class & SSE_END) | SSE_ERROR);
    if (a->has_usage && a->has_choices && !a->has_choice)
        class |= SSE_USAGE_ONLY;
    return (unsigned char)class;
}

static void note_error(struct sse *s)
{
    const struct answer *a = &s->answer;
    if (s->seen & SSE_ERROR)
        return;
    s->error_code = a->error_code;
    s->error_text_bytes = a->error_text_bytes;
    memcpy(s->error_text, a->error_text, a->error_text_bytes);
    s->refused = (unsigned char)answer_is_refusal(a);
    s->going_away = a->going_away;
}

static void note_event(struct sse *s, unsigned char class)
{
    s->last_class = class;
    s->last_start = s->event_start;
    s->last_end = s->position;
    if (class & SSE_COMMENT)
        return;
    s->events++;
    s->content_events += (class & SSE_CONTENT) != 0;
    if (class & SSE_ERROR)
        note_error(s);
    if (class & SSE_USAGE_ONLY) {
        s->usage_start = s->event_start;
        s->usage_end = s->position;
    }
    if (!s->head_end && !(class & SSE_PREAMBLE)) {
        s->head_end = s->position;
        s->head_class = class;
    }
    s->seen |= class;
}

/* An empty line. Without a line before it, it belongs to nothing. */
static void end_event(struct sse *s)
{
    if (s->has_lines)
        note_event(s, classify(s));
    s->event_start = s->position;
    s->has_lines = s->has_data = 0;
    s->name_bytes = s->mark_bytes = 0;
    answer_begin(&s->answer);
}

/* Returns 1 if the line ended an event. */
static int end_line(struct sse *s)
{
    int ends = !s->line_has_bytes;
    if (ends)
        end_event(s);
    else
        s->has_lines = 1;
    s->field = FIELD_NAME;
    s->line_has_bytes = s->text_bytes = s->after_colon = 0;
    return ends;
}

static void start_data(struct sse *s)
{
    s->field = FIELD_DATA;
    if (s->has_data)
        answer_feed(&s->answer, "\n", 1);
    s->has_data = 1;
}

static void end_field_name(struct sse *s)
{
    s->after_colon = 1;
    if (s->text_bytes == 4 && memcmp(s->text, "data", 4) == 0)
        start_data(s);
    else if (s->text_bytes == 5 && memcmp(s->text, "event", 5) == 0)
        s->field = FIELD_EVENT;
    else
        s->field = FIELD_OTHER;
    s->name_bytes = s->field == FIELD_EVENT ? 0 : s->name_bytes;
}

static size_t read_field_name(struct sse *s, const char *p, size_t len)
{
    size_t i = 0;
    if (len >= 5 && !s->text_bytes && memcmp(p, "data:", 5) == 0) { /* the usual line, at once */
        s->after_colon = 1;
        start_data(s);
        return 5;
    }
    while (i < len && p[i] != ':') {
        if (s->text_bytes < sizeof s->text)
            s->text[s->text_bytes++] = p[i];
        i++;
    }
    if (i == len)
        return len;
    end_field_name(s);
    return i + 1;
}

static void read_value(struct sse *s, const char *p, size_t len)
{
    size_t part;
    if (s->field == FIELD_DATA) {
        part = min(sizeof s->mark - s->mark_bytes, len);
        memcpy(s->mark + s->mark_bytes, p, part);
        s->mark_bytes += (unsigned char)part;
        answer_feed(&s->answer, p, len);
    } else if (s->field == FIELD_EVENT) {
        part = min(sizeof s->name - s->name_bytes, len);
        memcpy(s->name + s->name_bytes, p, part);
        s->name_bytes += (unsigned char)part;
    }
}

/* A piece of one line, without its end. */
static void read_line(struct sse *s, const char *p, size_t len)
{
    size_t used = 0;
    if (len == 0)
        return;
    s->line_has_bytes = 1;
    if (s->field == FIELD_NAME)
        used = read_field_name(s, p, len);
    if (s->after_colon && used < len) {
        used += p[used] == ' ';
        s->after_colon = 0;
    }
    if (used < len)
        read_value(s, p + used, len - used);
}

static const unsigned char *find_line_end(const unsigned char *p, const unsigned char *end)
{
    const unsigned char *feed = memchr(p, '\n', (size_t)(end - p)), *stop = feed ? feed : end;
    const unsigned char *ret = memchr(p, '\r', (size_t)(stop - p));
    return ret ? ret : stop;
}

/* Ends the line whose carriage return was the last byte; a line feed at p belongs to it. */
static int end_returned_line(struct sse *s, const unsigned char **p)
{
    s->after_return = 0;
    if (**p == '\n') {
        ++*p;
        s->position++;
    }
    return end_line(s);
}

size_t sse_step(struct sse *s, const char *bytes, size_t len)
{
    const unsigned char *start = (const unsigned char *)bytes, *p = start, *end = start + len;
    while (p < end) {
        const unsigned char *stop;
        if (s->after_return) {
            if (end_returned_line(s, &p))
                break;
            continue;
        }
        stop = find_line_end(p, end);
        read_line(s, (const char *)p, (size_t)(stop - p));
        s->position += (size_t)(stop - p) + (stop < end);
        p = stop + (stop < end);
        if (stop == end)
            break;
        if (*stop == '\r')
            s->after_return = 1;
        else if (end_line(s))
            break;
    }
    return (size_t)(p - start);
}

uint64_t sse_feed(struct sse *s, const char *bytes, size_t len)
{
    uint64_t before = s->events;
    while (len) {
        size_t used = sse_step(s, bytes, len);
        bytes += used;
        len -= used;
    }
    return s->events - before;
}
