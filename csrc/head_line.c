#include "head_line.h"

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

/* Token characters of RFC 9110 5.6.2, 32 a word. */
static const uint32_t TOKEN_CHARS[8] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff};

static int is_token_char(unsigned char c) { return TOKEN_CHARS[c >> 5] >> (c & 31) & 1; }

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
        return head_same(s, name, len);
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

struct head_span head_trim(const char *head, uint32_t from, uint32_t to)
{
    while (from < to && (head[from] == ' ' || head[from] == '\t'))
        from++;
    while (to > from && (head[to - 1] == ' ' || head[to - 1] == '\t'))
        to--;
    return (struct head_span){from, to - from};
}

uint32_t head_line_end(const char *head, uint32_t size, uint32_t at, uint32_t *colon)
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
    if (*at == 0 && (*at = head_line_end(head, size, 0, &colon)) == 0)
        return -1;
    next = head_line_end(head, size, *at, &colon);
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
    line->value = head_trim(head, colon + 1, next - 2);
    line->id = identify(head + line->at, line->name_len);
    *at = next;
    return 1;
}

int head_next_token(const char *head, struct head_span *list, struct head_span *token)
{
    while (list->len) {
        const char *comma = memchr(head + list->at, ',', list->len);
        uint32_t len = comma ? (uint32_t)(comma - head) - list->at : list->len;
        *token = head_trim(head, list->at, list->at + len);
        list->at += len + (comma != NULL);
        list->len -= len + (comma != NULL);
        if (token->len)
            return 1;
    }
    return 0;
}

static int is_nominated(const char *head, uint32_t size, const struct head_line *candidate)
{
    struct head_line line;
    struct head_span token;
    uint32_t at = 0, i;
    while (head_next(head, size, &at, &line) == 1) {
        if (line.id != HEADER_CONNECTION)
            continue;
        while (head_next_token(head, &line.value, &token)) {
            if (token.len != candidate->name_len)
                continue;
            for (i = 0; i < token.len &&
                        head_lower(head[token.at + i]) == head_lower(head[candidate->at + i]);
                 i++)
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
