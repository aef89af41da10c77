#include "head.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

static struct head_names ids, sessions;

/* Reads a copy that ends where its allocation ends, so that ASan sees every byte read beyond it. */
static int read_request(const char *text, struct request_head *out)
{
    size_t size = strlen(text);
    char *copy = malloc(size);
    int result;
    memcpy(copy, text, size);
    result = head_read_request(copy, (uint32_t)size, &ids, &sessions, out);
    free(copy);
    return result;
}

static int is_refused(const char *text)
{
    struct request_head r;
    return read_request(text, &r) != 0;
}

static int span_is(const char *text, struct head_span span, const char *want)
{
    return span.len == strlen(want) && memcmp(text + span.at, want, span.len) == 0;
}

static void a_request_is_read(void)
{
    static const char text[] = "POST /v1/x?y=1 HTTP/1.1\r\nHost: g\r\nContent-Length: 12\r\n"
                               "CONTENT-TYPE:  application/json; charset=utf-8 \t\r\n"
                               "X-Correlation-Id: second\r\nX-Request-Id: first\r\n"
                               "x-session-id: s1\r\nExpect: 100-Continue\r\n"
                               "x-headrace-priority: bulk\r\nConnection: close, X-Secret\r\n\r\n";
    struct request_head r;
    CHECK(read_request(text, &r) == 0);
    CHECK(span_is(text, r.method, "POST") && span_is(text, r.target, "/v1/x?y=1"));
    CHECK(r.minor == 1 && r.content_length == 12 && r.lines == 9 && r.priority == 3);
    CHECK(r.flags == (HEAD_JSON | HEAD_CONTINUE | HEAD_CLOSE | HEAD_NOMINATES));
    CHECK(span_is(text, r.request_id, "first") && span_is(text, r.session, "s1"));
    CHECK(span_is(text, r.content_type, "application/json; charset=utf-8"));
}

static void upgrades_need_header_and_token(void)
{
    struct request_head r;
    CHECK(read_request("GET / HTTP/1.1\r\nHost: g\r\nUpgrade: h2c\r\n\r\n", &r) == 0);
    CHECK(!(r.flags & HEAD_UPGRADE));
    CHECK(read_request("GET / HTTP/1.1\r\nHost: g\r\nUpgrade: websocket\r\n"
                       "Connection: keep-alive, Upgrade\r\n\r\n",
                       &r) == 0);
    CHECK(r.flags & HEAD_UPGRADE);
}

static void ambiguous_heads_are_refused(void)
{
    static const char *const lines[] = {
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 1234567890123456789\r\n",
        "Content-Length : 1\r\n",
        " folded: 1\r\n",
        "X: 1\r\n\tfolded\r\n",
        "X: 1\nY: 2\r\n",
        "X: 1\rY: 2\r\n",
        ": no name\r\n",
        "no colon\r\n",
        "Host: again\r\n",
    };
    char text[256];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: g\r\n%s\r\n", lines[i]);
        CHECK(is_refused(text));
    }
    CHECK(is_refused("POST / HTTP/1.1\r\n\r\n"));
    CHECK(is_refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"));
    CHECK(is_refused("POST  / HTTP/1.1\r\nHost: g\r\n\r\n"));
    CHECK(is_refused("POST / HTTP/2.0\r\nHost: g\r\n\r\n"));
    CHECK(is_refused("POST / HTTP/1.1 \r\nHost: g\r\n\r\n"));
    CHECK(is_refused("/ HTTP/1.1\r\nHost: g\r\n\r\n"));
}

static void what_belongs_to_the_connection_stays(void)
{
    static const char text[] =
        "POST / HTTP/1.1\r\nHost: g\r\nX-A: 1\r\nConnection: x-secret, close\r\n"
        "X-Secret: 1\r\nTE: trailers\r\nX-A: 2\r\nKeep-Alive: 5\r\n\r\n";
    char out[sizeof text];
    uint32_t size = sizeof text - 1;
    uint64_t drop = HEADERS_HOP_BY_HOP | HEADER_BIT(HEADER_HOST);
    uint32_t n = head_copy(text, size, drop, 1, out);
    CHECK(n == strlen("X-A: 1\r\nX-A: 2\r\n") && memcmp(out, "X-A: 1\r\nX-A: 2\r\n", n) == 0);
}

static void values_are_joined(void)
{
    static const char text[] = "GET / HTTP/1.1\r\nX-Forwarded-For: 1.1.1.1\r\nHost: g\r\n"
                               "x-forwarded-for:  2.2.2.2, 3.3.3.3 \r\n\r\n";
    char out[sizeof text];
    uint32_t n = head_join(text, sizeof text - 1, HEADER_FORWARDED_FOR, out);
    CHECK(n == 25 && memcmp(out, "1.1.1.1, 2.2.2.2, 3.3.3.3", n) == 0);
}

static int read_response(const char *text, struct response_head *out)
{
    return head_read_response(text, (uint32_t)strlen(text), out);
}

static void a_response_is_read(void)
{
    static const char text[] = "HTTP/1.1 200 Very OK\r\ntransfer-encoding: chunked\r\n"
                               "content-type: text/event-stream; charset=utf-8\r\n\r\n";
    struct response_head a;
    CHECK(read_response(text, &a) == 0 && a.status == 200 && a.minor == 1);
    CHECK(a.flags == (HEAD_CHUNKED | HEAD_EVENTS) && span_is(text, a.reason, "200 Very OK"));
    CHECK(read_response("HTTP/1.1 200\r\n\r\n", &a) == 0 && a.content_length == -1);
    CHECK(read_response("HTTP/1.1 2xx OK\r\n\r\n", &a) != 0);
    CHECK(read_response("HTTP/1.1 099 OK\r\n\r\n", &a) != 0);
    CHECK(read_response("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", &a) !=
          0);
}

static void the_end_of_a_head_is_found_wherever_it_stands(void)
{
    char data[96];
    for (size_t at = 0; at + 4 <= 80; at++) {
        char *copy = malloc(80);
        memset(data, 'x', sizeof data);
        memcpy(data + at, "\r\n\r\n", 4);
        memcpy(copy, data, 80);
        CHECK(head_end(copy, 80) == at + 4);
        CHECK(head_end(copy, at + 4) == at + 4 && head_end(copy, at + 3) == 0);
        copy[at + 2] = 'x';
        CHECK(head_end(copy, 80) == 0);
        free(copy);
    }
}

/* Names and values of every length up to some lanes: each shifts the line's end and its colon. */
static void lines_are_found_at_every_length(void)
{
    char text[256], fill[48];
    struct head_line line;
    for (int n = 1; n < 40; n++) {
        uint32_t at = 0;
        int size;
        memset(fill, 'a', sizeof fill);
        fill[n] = 0;
        size =
            snprintf(text, sizeof text, "GET / HTTP/1.1\r\n%s:\tv:%s \r\nb: c\r\n\r\n", fill, fill);
        CHECK(head_next(text, (uint32_t)size, &at, &line) == 1);
        CHECK(line.name_len == (uint32_t)n && line.value.len == (uint32_t)n + 2);
        CHECK(head_next(text, (uint32_t)size, &at, &line) == 1 && line.name_len == 1);
        CHECK(head_next(text, (uint32_t)size, &at, &line) == 0);
        for (int odd = 16; odd < 20 + 2 * n; odd++) {
            char kept = text[odd];
            text[odd] = odd % 2 ? '\r' : 0;
            at = 0;
            CHECK(kept == '\r' || head_next(text, (uint32_t)size, &at, &line) == -1);
            text[odd] = kept;
        }
    }
}

static void known_names_are_known_in_any_case_and_nothing_near_them_is(void)
{
    static const struct {
        enum header id;
        const char *name;
    } names[] = {
        {HEADER_TE, "Te"},
        {HEADER_HOST, "hOST"},
        {HEADER_EXPECT, "Expect"},
        {HEADER_TRAILER, "TRAILER"},
        {HEADER_X_API_KEY, "X-Api-Key"},
        {HEADER_CONNECTION, "Connection"},
        {HEADER_KEEP_ALIVE, "keep-Alive"},
        {HEADER_AUTHORIZATION, "authorizatioN"},
        {HEADER_CONTENT_LENGTH, "Content-Length"},
        {HEADER_TRANSFER_ENCODING, "Transfer-Encoding"},
        {HEADER_FORWARDED_PROTO, "X-FORWARDED-PROTO"},
        {HEADER_PROXY_AUTHORIZATION, "Proxy-Authorization"},
        {HEADER_ACCESS_CONTROL_REQUEST_HEADERS, "Access-Control-Request-Headers"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[96];
        struct head_line line;
        size_t len = strlen(names[i].name);
        int size = snprintf(text, sizeof text, "GET / HTTP/1.1\r\n%s: 1\r\n\r\n", names[i].name);
        uint32_t at = 0;
        CHECK(head_next(text, (uint32_t)size, &at, &line) == 1 && line.id == names[i].id);
        for (size_t j = 0; j < len; j++) {
            char kept = text[16 + j];
            text[16 + j] = kept == 'q' ? 'z' : 'q';
            at = 0;
            CHECK(head_next(text, (uint32_t)size, &at, &line) == 1 && line.id == HEADER_OTHER);
            text[16 + j] = kept;
        }
    }
}

int main(void)
{
    CHECK(head_add_name(&ids, "X-Request-Id", 12) == 0);
    CHECK(head_add_name(&ids, "x-correlation-id", 16) == 0);
    CHECK(head_add_name(&sessions, "x-session-id", 12) == 0);
    a_request_is_read();
    upgrades_need_header_and_token();
    ambiguous_heads_are_refused();
    what_belongs_to_the_connection_stays();
    values_are_joined();
    a_response_is_read();
    the_end_of_a_head_is_found_wherever_it_stands();
    lines_are_found_at_every_length();
    known_names_are_known_in_any_case_and_nothing_near_them_is();
    return 0;
}
