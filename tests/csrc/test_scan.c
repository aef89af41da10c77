#include "scan.h"

#include "hash.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Scans a copy that ends where its allocation ends, so that ASan sees every byte read beyond it. */
static int scan_exact(const char *body, size_t len, struct scan *out)
{
    char *copy = malloc(len ? len : 1);
    uint64_t keys[SCAN_MAX_BLOCKS];
    int done;
    memcpy(copy, body, len);
    done = scan_body(copy, len, out);
    if (done == 0)
        scan_prefix(copy, len, out, keys, SCAN_MAX_BLOCKS);
    free(copy);
    return done;
}

static int scan_text(const char *body, struct scan *out)
{
    return scan_exact(body, strlen(body), out);
}

static const char CHAT[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be "
    "brief.\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
    "\"text\":\"caf\xc3\xa9 \\u5317 \xe4\xba\xac "
    "\\ud83d\\ude00\"},{\"type\":\"image_url\",\"image_url\":{\"url\":"
    "\"data:x\"}}]}],\"mod\\u0065l\":\"m\\n\",\"stream\":true,\"stream_options\":{\"include_"
    "usage\":true},\"n\":2,"
    "\"max_tokens\":16,\"seed\":1e999,\"x\":[1,-2.5e+3,[],{},[{\"a\":null}],false]}";

static void a_chat_is_recorded(void)
{
    struct scan s;
    char model[8];
    CHECK(scan_text(CHAT, &s) == 0);
    CHECK(s.field[SCAN_MODEL].escaped &&
          scan_decode(CHAT, &s.field[SCAN_MODEL], model, sizeof model) == 2);
    CHECK(memcmp(model, "m\n", 2) == 0);
    CHECK(s.field[SCAN_STREAM].kind == JSON_TRUE && s.field[SCAN_INCLUDE_USAGE].kind == JSON_TRUE);
    CHECK(s.n == 2 && s.max_tokens == 16 && s.priority == 0);
    CHECK(s.messages == 2 && s.images == 1 && s.prompts == 1);
    CHECK(s.counts.letters == 6 + 2 + 5 + 4 + 3 && s.counts.words == 5);
    CHECK(s.counts.latin == 1 && s.counts.cjk == 2 && s.counts.other == 1);
}

static void every_truncation_is_refused(void)
{
    struct scan s;
    for (size_t len = 0; len < sizeof CHAT - 1; len++)
        CHECK(scan_exact(CHAT, len, &s) == -1);
}

static void any_single_byte_change_is_survived(void)
{
    char copy[sizeof CHAT];
    struct scan s;
    for (size_t at = 0; at < sizeof CHAT - 1; at++) {
        memcpy(copy, CHAT, sizeof CHAT);
        for (int byte = 0; byte < 256; byte++) {
            copy[at] = (char)byte;
            scan_exact(copy, sizeof CHAT - 1, &s);
        }
    }
}

static void depth_is_limited(void)
{
    static char body[4096];
    struct scan s;
    for (int depth = JSON_MAX_DEPTH; depth <= JSON_MAX_DEPTH + 1; depth++) {
        size_t len = (size_t)sprintf(body, "{\"a\":");
        memset(body + len, '[', (size_t)depth - 1);
        memset(body + len + depth - 1, ']', (size_t)depth - 1);
        len += 2 * (size_t)(depth - 1);
        body[len++] = '}';
        CHECK(scan_exact(body, len, &s) == (depth == JSON_MAX_DEPTH ? 0 : -1));
    }
}

static void blocks_are_chained_from_the_decoded_text(void)
{
    static char body[2048];
    unsigned char stream[2 + 600] = {0xF9, SCAN_PROMPT};
    uint64_t keys[4], chain;
    struct scan s;
    size_t len = (size_t)sprintf(body, "{\"prompt\":\"");
    for (int i = 0; i < 600; i++) {
        stream[2 + i] = (unsigned char)('a' + i % 26);
        len += (size_t)sprintf(body + len, i % 7 ? "%c" : "\\u%04x", 'a' + i % 26);
    }
    len += (size_t)sprintf(body + len, "\"}");
    CHECK(scan_body(body, len, &s) == 0);
    CHECK(scan_prefix(body, len, &s, keys, 4) == 2);
    chain = hash_bytes(stream, 256, 0);
    CHECK(keys[0] == chain);
    CHECK(keys[1] == hash_bytes(stream + 256, 256, chain));
    CHECK(scan_prefix(body, len, &s, keys, 1) == 1);
    CHECK(scan_prefix(body, len, &s, keys, 0) == 0);
}

int main(void)
{
    a_chat_is_recorded();
    every_truncation_is_refused();
    any_single_byte_change_is_survived();
    depth_is_limited();
    blocks_are_chained_from_the_decoded_text();
    return 0;
}
