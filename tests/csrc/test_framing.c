#include "framing.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Takes everything in pieces of `step` bytes; the body so far in out, its length returned. */
static size_t take(struct framing *f, const char *text, size_t step, char *out, size_t *taken)
{
    size_t size = strlen(text), at = 0, used = 0;
    while (at < size && !f->done && !f->bad) {
        size_t end = at + step < size ? at + step : size;
        while (at < end && !f->done && !f->bad) {
            const char *payload;
            size_t n;
            at += framing_next(f, text + at, end - at, &payload, &n);
            memcpy(out + used, payload, n);
            used += n;
        }
    }
    *taken = at;
    return used;
}

static void chunks_are_read_however_they_are_cut(void)
{
    static const char text[] =
        "5\r\nhello\r\n00A;x=\"a;b\"\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\nGET";
    for (size_t step = 1; step < sizeof text; step++) {
        struct framing f;
        char out[64];
        size_t taken;
        framing_start(&f, FRAMING_CHUNKED, 0);
        CHECK(take(&f, text, step, out, &taken) == 15 && memcmp(out, "hello0123456789", 15) == 0);
        CHECK(f.done && !f.bad && taken == strlen(text) - 3);
    }
}

static void broken_chunks_are_bad(void)
{
    static const char *const texts[] = {
        "zz\r\n",
        "\r\n",
        "4\r\nhellox\r\n",
        "5\nhello",
        "5 x\nhello",
        "-1\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "10000000000000000\r\n",
        "0\r\nX: 1\n\r\n",
        "0\r\n\rX",
        "5\rX",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct framing f;
        char out[64];
        size_t taken;
        framing_start(&f, FRAMING_CHUNKED, 0);
        take(&f, texts[i], 64, out, &taken);
        CHECK(f.bad && !f.done);
    }
}

static void a_length_ends_where_it_says(void)
{
    struct framing f;
    char out[64];
    size_t taken;
    framing_start(&f, FRAMING_LENGTH, 4);
    CHECK(take(&f, "abcdXYZ", 2, out, &taken) == 4 && taken == 4 && f.done);
    framing_start(&f, FRAMING_LENGTH, 0);
    CHECK(f.done);
    framing_start(&f, FRAMING_CLOSE, 0);
    CHECK(take(&f, "abc", 9, out, &taken) == 3 && !f.done);
}

/* Wherever a chunked body is cut, what framing_close says makes it a complete one. */
static void a_cut_body_can_be_closed(void)
{
    static const char text[] = "5;x\r\nhello\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        struct framing f;
        const char *before, *after;
        uint64_t newlines;
        size_t taken;
        char whole[256], out[256];
        framing_start(&f, FRAMING_CHUNKED, 0);
        snprintf(whole, sizeof whole, "%.*s", (int)cut, text);
        take(&f, whole, sizeof whole, out, &taken);
        CHECK(framing_close(&f, &before, &newlines, &after) == 0);
        strcat(whole, before);
        for (uint64_t i = 0; i < newlines; i++)
            strcat(whole, "\n");
        strcat(whole, after);
        strcat(whole, "0\r\n\r\n");
        framing_start(&f, FRAMING_CHUNKED, 0);
        take(&f, whole, sizeof whole, out, &taken);
        CHECK(f.done && taken == strlen(whole));
    }
}

static void behind_the_last_chunk_nothing_can_follow(void)
{
    struct framing f;
    const char *before, *after;
    uint64_t newlines;
    char out[8];
    size_t taken;
    framing_start(&f, FRAMING_CHUNKED, 0);
    take(&f, "0\r\nX", 8, out, &taken);
    CHECK(framing_close(&f, &before, &newlines, &after) == -1);
}

int main(void)
{
    chunks_are_read_however_they_are_cut();
    broken_chunks_are_bad();
    a_length_ends_where_it_says();
    a_cut_body_can_be_closed();
    behind_the_last_chunk_nothing_can_follow();
    return 0;
}
