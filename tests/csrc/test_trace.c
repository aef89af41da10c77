#include "hex.h"
#include "trace.h"

#include <string.h>

#include "check.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"

static int reads(const char *value)
{
    struct trace_parent p;
    return trace_read(value, (uint32_t)strlen(value), &p) == 0;
}

static void a_parent_is_read(void)
{
    struct trace_parent p;
    const char *value = "00-" TRACE "-" SPAN "-01";
    CHECK(trace_read(value, (uint32_t)strlen(value), &p) == 0);
    CHECK(memcmp(p.trace, TRACE, TRACE_DIGITS) == 0);
    CHECK(memcmp(p.span, SPAN, TRACE_SPAN_DIGITS) == 0);
    CHECK(p.flags & TRACE_SAMPLED);
    value = "00-" TRACE "-" SPAN "-a2";
    CHECK(trace_read(value, (uint32_t)strlen(value), &p) == 0);
    CHECK(p.flags == 0xa2);
}

static void what_is_no_parent_is_refused(void)
{
    CHECK(!reads(""));
    CHECK(!reads("00-" TRACE "-" SPAN));
    CHECK(!reads("00-" TRACE "-" SPAN "-0"));
    CHECK(!reads("ff-" TRACE "-" SPAN "-01"));
    CHECK(!reads("0g-" TRACE "-" SPAN "-01"));
    CHECK(!reads("00-" TRACE "-" SPAN "-0x"));
    CHECK(!reads("00_" TRACE "-" SPAN "-01"));
    CHECK(!reads("00-" TRACE "_" SPAN "-01"));
    CHECK(!reads("00-" TRACE "-" SPAN "_01"));
    CHECK(!reads("00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01"));
    CHECK(!reads("00-00000000000000000000000000000000-" SPAN "-01"));
    CHECK(!reads("00-" TRACE "-0000000000000000-01"));
}

static void a_later_version_may_be_longer(void)
{
    CHECK(reads("01-" TRACE "-" SPAN "-01"));
    CHECK(reads("cc-" TRACE "-" SPAN "-01-what-the-future-will-be-like"));
    CHECK(!reads("cc-" TRACE "-" SPAN "-01.what"));
    CHECK(!reads("00-" TRACE "-" SPAN "-01-more"));
}

/* Read to the end of the value and no further: the sanitizer watches the heap copy. */
static void no_byte_behind_the_value_is_read(void)
{
    const char *value = "00-" TRACE "-" SPAN "-01";
    for (size_t len = 0; len <= strlen(value); len++) {
        char *copy = malloc(len ? len : 1);
        struct trace_parent p;
        memcpy(copy, value, len);
        CHECK((trace_read(copy, (uint32_t)len, &p) == 0) == (len == strlen(value)));
        free(copy);
    }
}

static void numbers_become_sixteen_digits(void)
{
    char text[16];
    hex_write(0x0123456789abcdefULL, text);
    CHECK(memcmp(text, "0123456789abcdef", 16) == 0);
    hex_write(1, text);
    CHECK(memcmp(text, "0000000000000001", 16) == 0);
}

int main(void)
{
    a_parent_is_read();
    what_is_no_parent_is_refused();
    a_later_version_may_be_longer();
    no_byte_behind_the_value_is_read();
    numbers_become_sixteen_digits();
    return 0;
}
