#include "head.h"

#include <string.h>

#include "lanes.h"

static const struct {
    unsigned char len;
    unsigned char id;
    char name[31];
} KNOWN[] = {
    {2, HEADER_TE, "te"},
    {4, HEADER_HOST, "host"},
    {6, HEADER_EXPECT, "expect"},
    {6, HEADER_ORIGIN, "origin"},
    {7, HEADER_TRAILER, "trailer"},
    {7, HEADER_UPGRADE, "upgrade"},
    {9, HEADER_X_API_KEY, "x-api-key"},
    {10, HEADER_CONNECTION, "connection"},
    {10, HEADER_KEEP_ALIVE, "keep-alive"},
    {10, HEADER_TRACESTATE, "tracestate"},
    {11, HEADER_TRACEPARENT, "traceparent"},
    {12, HEADER_CONTENT_TYPE, "content-type"},
    {12, HEADER_REQUEST_ID, "x-request-id"},
    {13, HEADER_AUTHORIZATION, "authorization"},
    {14, HEADER_CONTENT_LENGTH, "content-length"},
    {14, HEADER_SMG_PRIORITY, "x-smg-priority"},
    {15, HEADER_FORWARDED_FOR, "x-forwarded-for"},
    {16, HEADER_DEBUG, "x-headrace-debug"},
    {16, HEADER_CONTENT_ENCODING, "content-encoding"},
    {16, HEADER_PROXY_CONNECTION, "proxy-connection"},
    {17, HEADER_FORWARDED_PROTO, "x-forwarded-proto"},
    {17, HEADER_TRANSFER_ENCODING, "transfer-encoding"},
    {18, HEADER_PROXY_AUTHENTICATE, "proxy-authenticate"},
    {18, HEADER_REPLICA, "x-headrace-replica"},
    {19, HEADER_PRIORITY, "x-headrace-priority"},
    {19, HEADER_PROXY_AUTHORIZATION, "proxy-authorization"},
    {20, HEADER_DP_RANK, "x-data-parallel-rank"},
    {29, HEADER_ACCESS_CONTROL_REQUEST_METHOD, "access-control-request-method"},
    {30, HEADER_ACCESS_CONTROL_REQUEST_HEADERS, "access-control-request-headers"},
};

enum { KNOWN_COUNT = sizeof(KNOWN) / sizeof(KNOWN[0]), LONGEST = 30 };

/* First entry of each length: names of one length stand together. */
static const unsigned char FIRST[LONGEST + 2] = {
    [2] = 1,   [4] = 2,   [6] = 3,   [7] = 5,   [9] = 7,   [10] = 8,
    [11] = 11, [12] = 12, [13] = 14, [14] = 15, [15] = 17, [16] = 18,
    [17] = 21, [18] = 23, [19] = 25, [20] = 27, [29] = 28, [30] = 29,
};

/* Only both together ask for an upgrade. */
enum { UPGRADE_HEADER = 1 << 30, UPGRADE_TOKEN = 1 << 29 };

/* Token characters of RFC 9110 5.6.2, 32 a word. */
static const uint32_t TOKEN_CHARS[8] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff};

static int is_token_char(unsigned char c) { return TOKEN_CHARS[c >> 5] >> (c & 31) & 1; }

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }

/* want is in lower case. */
static int same(const char *s, const char *want, uint32_t len)
{
    uint32_t i;
    for (i = 0; i < len; i++)
        if (lower(s[i]) != want[i])
            return 0;
    return 1;
}

static uint64_t folded8(const char *s)
{
    uint64_t word;
    memcpy(&word, s, 8);
    return word | 0x2020202020202020;
}

static uint32_t folded4(const char *s)
{
    uint32_t word;
    memcpy(&word, s, 4);
    return word | 0x20202020;
}

/* The same for a known name: letters and hyphens only, which no other byte of a line folds into. */
static int is_named(const char *s, const char *name, uint32_t len)
{
    uint32_t i;
    if (len < 4)
        return same(s, name, len);
    if (len < 8)
        return folded4(s) == folded4(name) && folded4(s + len - 4) == folded4(name + len - 4);
    for (i = 0; i + 8 < len; i += 8)
        if (folded8(s + i) != folded8(name + i))
            return 0;
    return folded8(s + len - 8) == folded8(name + len - 8);
}

static enum header identify(const char *name, uint32_t len)
{
    uint32_t i;
    if (len > LONGEST || FIRST[len] == 0)
        return HEADER_OTHER;
    for (i = FIRST[len] - 1u; i < KNOWN_COUNT && KNOWN[i].len == len; i++)
        if (is_named(name, KNOWN[i].name, len))
            return (enum header)KNOWN[i].id;
    return HEADER_OTHER;
}

static struct head_span trim(const char *head, uint32_t from, uint32_t to)
{
    while (from < to && (head[from] == ' ' || head[from] == '\t'))
        from++;
    while (to > from && (head[to - 1] == ' ' || head[to - 1] == '\t'))
        to--;
    return (struct head_span){from, to - from};
}

/* Offset behind the line that starts at `at`, or 0 if it does not end in exactly one CR LF or has a
 * stray CR or NUL. *colon is its first one, or 0. */
static uint32_t line_end(const char *head, uint32_t size, uint32_t at, uint32_t *colon)
{
    const unsigned char *start = (const unsigned char *)head + at;
    const unsigned char *end = (const unsigned char *)head + size, *p;
    *colon = 0;
    for (p = start; p < end; p += LANES) {
        lanes v = lanes_load_within(p, end);
        int stop = lanes_first((v == '\r') | (v == '\n') | (v == 0));
        int found = *colon ? LANES : lanes_first(v == ':');
        if (found < stop)
            *colon = at + (uint32_t)(p - start) + (uint32_t)found;
        if (stop == LANES)
            continue;
        p += stop;
        return end - p >= 2 && p[0] == '\r' && p[1] == '\n' ? at + (uint32_t)(p - start) + 2 : 0;
    }
    return 0;
}

uint64_t head_end(const char *data, uint64_t size)
{
    const unsigned char *p = (const unsigned char *)data, *end = p + size;
    for (; end - p >= LANES + 3; p += LANES) {
        lanes ends = (lanes_load(p) == '\r') & (lanes_load(p + 1) == '\n') &
                     (lanes_load(p + 2) == '\r') & (lanes_load(p + 3) == '\n');
        int at = lanes_first(ends);
        if (at < LANES)
            return (uint64_t)(p - (const unsigned char *)data) + (uint64_t)at + 4;
    }
    for (; end - p >= 4; p++)
        if (memcmp(p, "\r\n\r\n", 4) == 0)
            return (uint64_t)(p - (const unsigned char *)data) + 4;
    return 0;
}

int head_next(const char *head, uint32_t size, uint32_t *at, struct head_line *line)
{
    uint32_t next, colon;
    if (*at == 0 && (*at = line_end(head, size, 0, &colon)) == 0)
        return -1;
    next = line_end(head, size, *at, &colon);
    if (next == 0)
        return -1;
    if (next == *at + 2)
        return next == size ? 0 : -1;
    line->at = *at;
    line->len = next - *at - 2;
    if (colon <= line->at)
        return -1;
    line->name_len = colon - line->at;
    /* A blank at either end of a name is what splits requests: a folded line, or a name that
     * another hop trims. */
    if (!is_token_char((unsigned char)head[line->at]) ||
        !is_token_char((unsigned char)head[colon - 1]))
        return -1;
    line->value = trim(head, colon + 1, next - 2);
    line->id = identify(head + line->at, line->name_len);
    *at = next;
    return 1;
}

/* Next element of a comma-separated list: 1 and *token, or 0. */
static int next_token(const char *head, struct head_span *list, struct head_span *token)
{
    while (list->len) {
        const char *comma = memchr(head + list->at, ',', list->len);
        uint32_t len = comma ? (uint32_t)(comma - head) - list->at : list->len;
        *token = trim(head, list->at, list->at + len);
        list->at += len + (comma != NULL);
        list->len -= len + (comma != NULL);
        if (token->len)
            return 1;
    }
    return 0;
}

static int is_word(const char *head, struct head_span span, const char *word)
{
    size_t len = strlen(word);
    return span.len == len && same(head + span.at, word, span.len);
}

static int starts_with(const char *head, struct head_span span, const char *word)
{
    uint32_t len = (uint32_t)strlen(word);
    return span.len >= len && same(head + span.at, word, len);
}

static uint32_t connection_flags(const char *head, struct head_span value)
{
    struct head_span token;
    uint32_t flags = 0;
    while (next_token(head, &value, &token)) {
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
        if (same(head + value.at + i, "+json", 5))
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
            same(head + line->at, names->name[i], line->name_len)) {
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
    uint32_t colon, end = line_end(head, size, 0, &colon);
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
    uint32_t colon, end = line_end(head, size, 0, &colon);
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

static int is_nominated(const char *head, uint32_t size, const struct head_line *candidate)
{
    struct head_line line;
    struct head_span token;
    uint32_t at = 0, i;
    while (head_next(head, size, &at, &line) == 1) {
        if (line.id != HEADER_CONNECTION)
            continue;
        while (next_token(head, &line.value, &token)) {
            if (token.len != candidate->name_len)
                continue;
            for (i = 0;
                 i < token.len && lower(head[token.at + i]) == lower(head[candidate->at + i]); i++)
                ;
            if (i == token.len)
                return 1;
        }
    }
    return 0;
}

uint32_t head_copy(const char *head, uint32_t size, uint64_t drop, int nominates, char *out)
{
    struct head_line line;
    uint32_t at = 0, used = 0;
    while (head_next(head, size, &at, &line) == 1) {
        if (drop >> line.id & 1 || (nominates && is_nominated(head, size, &line)))
            continue;
        memcpy(out + used, head + line.at, line.len + 2);
        used += line.len + 2;
    }
    return used;
}

uint32_t head_join(const char *head, uint32_t size, enum header id, char *out)
{
    struct head_line line;
    uint32_t at = 0, used = 0;
    while (head_next(head, size, &at, &line) == 1) {
        if (line.id != id || line.value.len == 0)
            continue;
        if (used) {
            memcpy(out + used, ", ", 2);
            used += 2;
        }
        memcpy(out + used, head + line.value.at, line.value.len);
        used += line.value.len;
    }
    return used;
}

int head_add_name(struct head_names *names, const char *name, uint32_t len)
{
    uint32_t i;
    if (names->count == HEAD_NAMES || len == 0 || len >= HEAD_NAME_BYTES)
        return -1;
    for (i = 0; i < len; i++)
        names->name[names->count][i] = lower(name[i]);
    names->len[names->count++] = (unsigned char)len;
    names->lengths |= 1ULL << len;
    return 0;
}
