#include "head_line.h"

/* Only both together ask for an upgrade. */
enum { UPGRADE_HEADER = 1 << 30, UPGRADE_TOKEN = 1 << 29 };

static int is_word(const char *head, struct head_span span, const char *word)
{
    size_t len = strlen(word);
    return span.len == len && head_same(head + span.at, word, span.len);
}

static int starts_with(const char *head, struct head_span span, const char *word)
{
    uint32_t len = (uint32_t)strlen(word);
    return span.len >= len && head_same(head + span.at, word, len);
}

static uint32_t connection_flags(const char *head, struct head_span value)
{
    struct head_span token;
    uint32_t flags = 0;
    while (head_next_token(head, &value, &token)) {
        if (is_word(head, token, "close"))
            flags |= HEAD_CLOSE;
        else if (is_word(head, token, "keep-alive"))
            flags |= HEAD_KEEP_ALIVE;
        else if (is_word(head, token, "upgrade"))
            flags |= UPGRADE_TOKEN;
        else
            flags |= HEAD_NOMINATES;
    }
    return flags;
}

/* Digits only; -1 for anything else or more than 18 of them. */
static int64_t read_length(const char *head, struct head_span value)
{
    int64_t n = 0;
    uint32_t i;
    if (value.len == 0 || value.len > 18)
        return -1;
    for (i = 0; i < value.len; i++) {
        char c = head[value.at + i];
        if (c < '0' || c > '9')
            return -1;
        n = n * 10 + (c - '0');
    }
    return n;
}

static uint32_t type_flags(const char *head, struct head_span value)
{
    uint32_t i;
    if (starts_with(head, value, "application/json"))
        return HEAD_JSON;
    if (starts_with(head, value, "text/event-stream"))
        return HEAD_EVENTS;
    if (starts_with(head, value, "multipart/form-data"))
        return HEAD_MULTIPART;
    for (i = 0; i + 5 <= value.len && head[value.at + i] != ';'; i++)
        if (head_same(head + value.at + i, "+json", 5))
            return HEAD_JSON;
    return 0;
}

/* Framing headers, common to both directions: 0, or -1 if ambiguous. */
static int read_framing(const char *head, const struct head_line *line, int64_t *length,
                        uint32_t *flags)
{
    switch (line->id) {
    case HEADER_CONTENT_LENGTH:
        if (*length >= 0 || *flags & HEAD_CHUNKED)
            return -1;
        *length = read_length(head, line->value);
        return *length < 0 ? -1 : 0;
    case HEADER_TRANSFER_ENCODING:
        if (*length >= 0 || *flags & HEAD_CHUNKED || !is_word(head, line->value, "chunked"))
            return -1;
        *flags |= HEAD_CHUNKED;
        return 0;
    case HEADER_CONNECTION: *flags |= connection_flags(head, line->value); return 0;
    case HEADER_CONTENT_ENCODING:
        if (line->value.len && !is_word(head, line->value, "identity"))
            *flags |= HEAD_ENCODED;
        return 0;
    default: return 0;
    }
}

/* Keeps the value of the most preferred of the configured names. */
static void prefer(const struct head_names *names, const char *head, const struct head_line *line,
                   uint32_t *best, struct head_span *out)
{
    uint32_t i;
    if (line->name_len >= HEAD_NAME_BYTES || !(names->lengths >> line->name_len & 1) ||
        line->value.len == 0)
        return;
    for (i = 0; i < *best; i++)
        if (names->len[i] == line->name_len &&
            head_same(head + line->at, names->name[i], line->name_len)) {
            *best = i;
            *out = line->value;
            return;
        }
}

static int32_t read_priority(const char *head, struct head_span value, int32_t otherwise)
{
    static const char *const names[] = {"system", "interactive", "default", "bulk"};
    int32_t i;
    for (i = 0; i < 4; i++)
        if (is_word(head, value, names[i]) || (value.len == 1 && head[value.at] == '0' + i))
            return i;
    return otherwise;
}

/* Offset behind the request line, or 0. */
static uint32_t read_first_line(const char *head, uint32_t size, struct request_head *out)
{
    uint32_t colon, end = head_line_end(head, size, 0, &colon);
    const char *first, *second;
    if (end < 2 + sizeof("G / HTTP/1.1") - 1)
        return 0;
    first = memchr(head, ' ', end - 2);
    if (first == NULL || first == head)
        return 0;
    second = memchr(first + 1, ' ', (size_t)(head + end - 2 - first - 1));
    if (second == NULL || second == first + 1 || head + end - 2 - second != 9)
        return 0;
    if (memcmp(second + 1, "HTTP/1.", 7) != 0 || (second[8] != '0' && second[8] != '1'))
        return 0;
    out->minor = (unsigned char)(second[8] - '0');
    out->method = (struct head_span){0, (uint32_t)(first - head)};
    out->target = (struct head_span){(uint32_t)(first - head) + 1, (uint32_t)(second - first) - 1};
    return end;
}

static void read_expect(const char *head, const struct head_line *line, struct request_head *out)
{
    out->flags |= is_word(head, line->value, "100-continue") ? HEAD_CONTINUE : HEAD_EXPECTS;
}

/* What is not framing: kept for later hops of the request. */
static void read_request_line(const char *head, const struct head_line *line,
                              struct request_head *out)
{
    switch (line->id) {
    case HEADER_AUTHORIZATION:
        out->authorization = line->value;
        out->keys++;
        break;
    case HEADER_X_API_KEY:
        out->api_key = line->value;
        out->keys++;
        break;
    case HEADER_ORIGIN: out->origin = line->value; break;
    case HEADER_ACCESS_CONTROL_REQUEST_METHOD: out->preflight_method = line->value; break;
    case HEADER_ACCESS_CONTROL_REQUEST_HEADERS: out->preflight_headers = line->value; break;
    case HEADER_CONTENT_TYPE:
        out->content_type = line->value;
        out->flags |= type_flags(head, line->value);
        break;
    case HEADER_EXPECT: read_expect(head, line, out); break;
    case HEADER_TRACEPARENT:
        out->traceparent = line->value;
        out->traceparents++;
        break;
    case HEADER_UPGRADE: out->flags |= UPGRADE_HEADER; break;
    case HEADER_DEBUG:
        if (is_word(head, line->value, "1"))
            out->flags |= HEAD_DEBUG;
        break;
    case HEADER_PRIORITY:
    case HEADER_SMG_PRIORITY:
        out->priority = read_priority(head, line->value, out->priority);
        break;
    default: break;
    }
}

int head_read_request(const char *head, uint32_t size, const struct head_names *ids,
                      const struct head_names *sessions, struct request_head *out)
{
    struct head_line line;
    uint32_t at = 0, hosts = 0, best_id = ids->count, best_session = sessions->count;
    int more;
    memset(out, 0, sizeof(*out));
    out->content_length = -1;
    out->priority = 2;
    if ((at = read_first_line(head, size, out)) == 0)
        return -1;
    while ((more = head_next(head, size, &at, &line)) == 1) {
        out->lines++;
        out->ids |= HEADER_BIT(line.id);
        hosts += line.id == HEADER_HOST;
        if (read_framing(head, &line, &out->content_length, &out->flags) != 0)
            return -1;
        read_request_line(head, &line, out);
        prefer(ids, head, &line, &best_id, &out->request_id);
        prefer(sessions, head, &line, &best_session, &out->session);
    }
    if (more < 0 || hosts > 1 || (hosts == 0 && out->minor == 1))
        return -1;
    if (out->flags & UPGRADE_HEADER && out->flags & UPGRADE_TOKEN)
        out->flags |= HEAD_UPGRADE;
    return out->flags & HEAD_CHUNKED && out->minor == 0 ? -1 : 0;
}

/* Offset behind the status line, or 0. */
static uint32_t read_status_line(const char *head, uint32_t size, struct response_head *out)
{
    uint32_t colon, end = head_line_end(head, size, 0, &colon);
    int i;
    if (end < 2 + sizeof("HTTP/1.1 200") - 1 || memcmp(head, "HTTP/1.", 7) != 0 || head[8] != ' ')
        return 0;
    if (head[7] != '0' && head[7] != '1')
        return 0;
    for (i = 9; i < 12; i++) {
        if (head[i] < '0' || head[i] > '9')
            return 0;
        out->status = (uint16_t)(out->status * 10 + (head[i] - '0'));
    }
    if (out->status < 100 || out->status > 999 || (end > 14 && head[12] != ' '))
        return 0;
    out->minor = (unsigned char)(head[7] - '0');
    out->reason = (struct head_span){9, end - 11};
    return end;
}

int head_read_response(const char *head, uint32_t size, struct response_head *out)
{
    struct head_line line;
    uint32_t at = 0;
    int more;
    memset(out, 0, sizeof(*out));
    out->content_length = -1;
    if ((at = read_status_line(head, size, out)) == 0)
        return -1;
    while ((more = head_next(head, size, &at, &line)) == 1) {
        if (read_framing(head, &line, &out->content_length, &out->flags) != 0)
            return -1;
        if (line.id == HEADER_CONTENT_TYPE) {
            out->content_type = line.value;
            out->flags |= type_flags(head, line.value);
        }
    }
    return more < 0 ? -1 : 0;
}

int head_add_name(struct head_names *names, const char *name, uint32_t len)
{
    uint32_t i;
    if (names->count == HEAD_NAMES || len == 0 || len >= HEAD_NAME_BYTES)
        return -1;
    for (i = 0; i < len; i++)
        names->name[names->count][i] = head_lower(name[i]);
    names->len[names->count++] = (unsigned char)len;
    names->lengths |= 1ULL << len;
    return 0;
}
