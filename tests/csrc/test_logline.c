#include "logline.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "record.h"

#define VALUE(text) {text, sizeof(text) - 1}

static const struct logline_value MODELS[] = {VALUE("\"other\""), VALUE("\"tiny \\\"7b\\\"\"")};
static const struct logline_value SLOTS[] = {VALUE("\"gpu1:8000\"")};
static const struct logline_value ENDPOINTS[] = {VALUE("\"other\""), VALUE("\"chat\"")};
static const struct logline_value OUTCOMES[] = {VALUE("\"ok\"")};
static const struct logline_value REASONS[] = {VALUE("\"cost\"")};
static const struct logline_value OTHER = VALUE("\"other\"");

static struct logline names(void)
{
    struct logline l = {
        .policy = VALUE("\"random\""),
        .endpoints = {ENDPOINTS, 2, OTHER},
        .outcomes = {OUTCOMES, 1, OTHER},
        .reasons = {REASONS, 1, OTHER},
        .models = {MODELS, 2, OTHER},
        .replicas = {SLOTS, 1, VALUE("null")},
    };
    logline_prepare(&l);
    return l;
}

static const struct access_record USUAL = {
    .end_unix_ns = 1700000000123456789,
    .duration_ns = 2000000000,
    .ttft_ns = 150000000,
    .bytes_in = 10,
    .bytes_out = 20,
    .estimated_prompt_tokens = 41.6,
    .prompt_tokens = -1,
    .completion_tokens = 5,
    .cached_tokens = 0,
    .tpot_s = 0.0125,
    .matched_tokens = 16.5,
    .score = -0.25,
    .model = 1,
    .status = 200,
    .endpoint = 1,
    .stream = 1,
    .output_limit = 64,
};

/* The line of a record with this text, from a buffer and into one of the exact size: the sanitizer
 * sees every byte beyond. */
static const char *line_of(struct access_record r, const char *text, uint32_t text_bytes)
{
    static char copy[1 << 13];
    struct logline l = names();
    char *record = malloc(sizeof r + text_bytes), *out = malloc(l.line_bytes);
    ptrdiff_t len;
    CHECK(record && out);
    r.text_bytes = (uint16_t)text_bytes;
    memcpy(record, &r, sizeof r);
    memcpy(record + sizeof r, text, text_bytes);
    len = logline_write(&l, record, (uint32_t)sizeof r + text_bytes, out, l.line_bytes);
    CHECK(len > 0 && (size_t)len <= l.line_bytes && out[len - 1] == '\n');
    CHECK(memchr(out, '\n', (size_t)len - 1) == NULL);
    memcpy(copy, out, (size_t)len);
    copy[len] = 0;
    free(record);
    free(out);
    return copy;
}

static void a_record_becomes_a_line(void)
{
    const char *expected =
        "{\"time\":1700000000.123456789,\"id\":\"abc\",\"trace\":null,"
        "\"model\":\"tiny \\\"7b\\\"\",\"endpoint\":\"chat\",\"replica\":\"gpu1:8000\","
        "\"policy\":\"random\",\"reason\":\"cost\",\"matched_tokens\":16,\"score\":-0.25,"
        "\"status\":200,\"outcome\":\"ok\",\"estimated_prompt_tokens\":42,"
        "\"prompt_tokens\":null,\"completion_tokens\":5,\"cached_tokens\":0,\"max_tokens\":64,"
        "\"stream\":true,\"queue_wait_s\":null,\"ttft_s\":0.15,\"tpot_s\":0.0125,"
        "\"duration_s\":2.0,\"bytes_in\":10,\"bytes_out\":20,\"retries\":0}\n";
    CHECK(strcmp(line_of(USUAL, "abc", 3), expected) == 0);
}

static void without_a_replica_there_is_no_choice(void)
{
    struct access_record r = USUAL;
    r.slot = -1;
    CHECK(strstr(line_of(r, "", 0), "\"replica\":null,\"policy\":null,\"reason\":null,"
                                    "\"matched_tokens\":null,\"score\":null,"));
}

static void numbers_without_a_name_are_other(void)
{
    struct access_record r = USUAL;
    r.model = r.reason = 0xffff;
    r.endpoint = r.outcome = 0xff;
    r.slot = 1;
    const char *line = line_of(r, "", 0);
    CHECK(strstr(line, "\"model\":\"other\",\"endpoint\":\"other\",\"replica\":null,"));
    CHECK(strstr(line, "\"reason\":\"other\"") && strstr(line, "\"outcome\":\"other\""));
}

static void a_text_cannot_break_its_string(void)
{
    CHECK(strstr(line_of(USUAL, "a\"b\\c\r\x01\x1f\x7f\xc3\xff", 11),
                 "\"id\":\"a\\\"b\\\\c\\r\\u0001\\u001f\x7f\xc3\x83\xc3\xbf\",\"trace\":null"));
    CHECK(strstr(line_of(USUAL, "0123456789abcdef\"0123456789abcde", 32),
                 "\"id\":\"0123456789abcdef\\\"0123456789abcde\""));
    CHECK(strstr(line_of(USUAL, "a\nb\nc", 5), "\"id\":\"a\",\"trace\":\"b\\nc\""));
    CHECK(strstr(line_of(USUAL, "a\n", 2), "\"id\":\"a\",\"trace\":null"));
    CHECK(strstr(line_of(USUAL, "\nb", 2), "\"id\":\"\",\"trace\":\"b\""));
}

/* Bytes that take the most room, in every place and at every distance from a step of 16. */
static void the_longest_line_fits(void)
{
    struct access_record r;
    char text[ACCESS_TEXT_BYTES];
    memset(&r, 0xff, sizeof r);
    r.prompt_tokens = r.completion_tokens = r.cached_tokens = INT64_MAX;
    r.estimated_prompt_tokens = r.matched_tokens = 8999999999.4;
    r.tpot_s = r.score = -8999999999.123456789;
    r.slot = 0;
    memset(text, 1, sizeof text);
    for (uint32_t len = 0; len <= ACCESS_TEXT_BYTES; len++)
        line_of(r, text, len);
    for (uint32_t at = 0; at < 40; at++) {
        memset(text, 'a', sizeof text);
        text[at] = '\n';
        line_of(r, text, sizeof text);
    }
}

static void numbers_that_are_none_are_null(void)
{
    const double odd[] = {NAN, INFINITY, -INFINITY, 1e300};
    for (int i = 0; i < 4; i++) {
        struct access_record r = USUAL;
        r.score = r.matched_tokens = r.estimated_prompt_tokens = r.tpot_s = odd[i];
        const char *line = line_of(r, "", 0);
        CHECK(strstr(line, "\"matched_tokens\":null,\"score\":null"));
        CHECK(strstr(line, "\"estimated_prompt_tokens\":null") && strstr(line, "\"tpot_s\":null"));
    }
}

static void what_is_no_record_gives_no_line(void)
{
    struct logline l = names();
    struct access_record r = USUAL;
    char out[1 << 13];
    CHECK(l.line_bytes <= sizeof out);
    CHECK(logline_write(&l, &r, sizeof r, out, sizeof out) > 0);
    CHECK(logline_write(&l, &r, sizeof r - 1, out, sizeof out) == 0);
    CHECK(logline_write(&l, &r, sizeof r, out, l.line_bytes - 1) == -1);
    r.text_bytes = 1;
    CHECK(logline_write(&l, &r, sizeof r, out, sizeof out) == 0);
    r.text_bytes = ACCESS_TEXT_BYTES + 1;
    CHECK(logline_write(&l, &r, sizeof r + ACCESS_TEXT_BYTES + 1, out, sizeof out) == 0);
}

int main(void)
{
    a_record_becomes_a_line();
    without_a_replica_there_is_no_choice();
    numbers_without_a_name_are_other();
    a_text_cannot_break_its_string();
    the_longest_line_fits();
    numbers_that_are_none_are_null();
    what_is_no_record_gives_no_line();
    return 0;
}
