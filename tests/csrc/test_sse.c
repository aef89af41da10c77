#include "sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char ROLE[] =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
static const char REST[] =
    ": ping\n\n"
    "event: x\r\ndata: {\"choices\": [{\"delta\": {\"content\": \"\\\"error\\\": {\\\\\"}, "
    "\"logprobs\": {\"a\": "
    "[{\"]\": \"}\"}]}, \"finish_reason\": \"abort\"}]}\r\n\r\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":12,"
    "\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n"
    "data: {\"error\": {\"message\": \"busy\", \"type\": \"Service Unavailable\", \"code\": "
    "503}}\n\n"
    "data: [DONE]\n\n";

/* Feeds a copy that ends where its allocation ends, so that ASan sees every byte read beyond it. */
static void feed_exact(struct sse *s, const char *bytes, size_t len)
{
    char *copy = malloc(len ? len : 1);
    memcpy(copy, bytes, len);
    sse_feed(s, copy, len);
    free(copy);
}

static void check_stream(const struct sse *s, size_t len)
{
    const struct answer_usage *usage = &s->answer.usage;
    CHECK(s->position == len && !sse_in_event(s));
    CHECK(s->events == 5 && s->content_events == 2);
    CHECK(s->seen == (SSE_CONTENT | SSE_USAGE_ONLY | SSE_ERROR | SSE_END));
    CHECK(s->head_end == sizeof ROLE - 1 && s->head_class == SSE_CONTENT);
    CHECK(s->last_class == SSE_END && s->last_end == len && s->last_start == len - 14);
    CHECK(s->answer.finishes == 1 && s->answer.aborted);
    CHECK(usage->prompt_tokens == 7 && usage->completion_tokens == 12 && usage->cached_tokens == 3);
    CHECK(s->error_code == 503 && s->refused);
    CHECK(s->usage_end > s->usage_start);
}

static void every_cut_gives_the_same(void)
{
    char stream[sizeof ROLE + sizeof REST];
    size_t len = (size_t)sprintf(stream, "%s%s", ROLE, REST);
    for (size_t first = 0; first <= len; first++) {
        struct sse s;
        size_t second = first + (len - first) / 3;
        sse_init(&s);
        feed_exact(&s, stream, first);
        feed_exact(&s, stream + first, second - first);
        feed_exact(&s, stream + second, len - second);
        check_stream(&s, len);
    }
}

static void any_byte_is_survived_anywhere(void)
{
    char stream[sizeof ROLE + sizeof REST];
    size_t len = (size_t)sprintf(stream, "%s%s", ROLE, REST);
    for (size_t at = 0; at < len; at++) {
        char saved = stream[at];
        for (int byte = 0; byte < 256; byte += 3) {
            struct sse s;
            sse_init(&s);
            stream[at] = (char)byte;
            feed_exact(&s, stream, at / 2);
            feed_exact(&s, stream + at / 2, len - at / 2);
            CHECK(s.position == len);
        }
        stream[at] = saved;
    }
}

static void a_plain_answer_is_read(void)
{
    static const char body[] =
        "{\"id\":\"x\",\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":8}}";
    struct answer a;
    answer_init(&a);
    for (size_t i = 0; i < sizeof body - 1; i++)
        answer_feed(&a, body + i, 1);
    CHECK(a.finishes == 1 && !a.aborted && !answer_is_error(&a));
    CHECK(a.usage.prompt_tokens == 4 && a.usage.completion_tokens == 8);
    CHECK(a.usage.cached_tokens == -1);
}

int main(void)
{
    every_cut_gives_the_same();
    any_byte_is_survived_anywhere();
    a_plain_answer_is_read();
    return 0;
}
