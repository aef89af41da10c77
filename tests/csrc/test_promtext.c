#include "promtext.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const struct promtext_name NAMES[] = {
    {"up", 2}, {"vllm:num_requests_running", 25}, {"temp", 4}};

static struct promtext_table table;
static struct promtext_sample found[8];
static struct promtext_counts counts;

/* Scans a copy of exactly `len` bytes, so that ASan sees a read past the end. */
static uint32_t scan_bytes(const char *page, size_t len, uint32_t capacity)
{
    char *copy = malloc(len ? len : 1);
    CHECK(copy);
    memcpy(copy, page, len);
    CHECK(promtext_scan(&table, copy, len, found, capacity, &counts) == 0);
    free(copy);
    return counts.samples;
}

static uint32_t scan(const char *page) { return scan_bytes(page, strlen(page), 8); }

static void test_wanted_lines_are_found_and_others_are_not(void)
{
    const char *page =
        "# HELP up x\n# TYPE up gauge\nup 1\nupper 2\nu 3\nup_total 4\n\nup{a=\"b\"} 5";
    CHECK(scan(page) == 2);
    CHECK(found[0].value == 1 && found[0].series == 0 && found[0].labels_len == 0);
    CHECK(found[1].value == 5 &&
          strncmp(page + found[1].labels_at, "a=\"b\"", found[1].labels_len) == 0);
    CHECK(counts.broken == 0 && counts.omitted == 0);
}

static void test_loose_spelling_is_read(void)
{
    CHECK(scan("  up\t{ a = \"x\" , b=\"}\\\"\" , }\t 3.5  1795952876812 \r\nup 1 # {id=\"x\"} 0.4 "
               "17\n# EOF\n") == 2);
    CHECK(found[0].value == 3.5 && found[1].value == 1);
}

static void test_broken_wanted_lines_are_counted(void)
{
    const char *lines[] = {"up{a=\"x\n", "up{} \n",
                           "up\n",       "up{a=\"b\"} zero\n",
                           "up{a} 1\n",  "up{=\"b\"} 1\n",
                           "up{a=\"b\"", "up 1 zero\n",
                           "up 1e\n",    "up{a=\"b\"c=\"d\"} 1\n",
                           "up{,} 1\n",  "up{a=\"\\",
                           "up . 1\n",   "up + 1\n",
                           "up 12x\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        CHECK(scan(lines[i]) == 0);
        CHECK(counts.broken == 1);
    }
    CHECK(scan("{} 3\nother{ 1\n = \n\n") == 0 && counts.broken == 0);
}

static void test_a_full_array_counts_what_it_leaves_out(void)
{
    CHECK(scan_bytes("up 1\nup 2\nup 3\n", 15, 2) == 2);
    CHECK(counts.omitted == 1 && counts.broken == 0);
    CHECK(scan_bytes("", 0, 0) == 0);
}

static void test_every_prefix_of_a_page_is_safe(void)
{
    const char page[] = "# x\nvllm:num_requests_running{engine=\"0\",model_name=\"a\\\\b\"} "
                        "+1.5e-3 12 # {a=\"b\"} 1\nup NaN\ntemp -Inf";
    for (size_t len = 0; len < sizeof page; len++)
        scan_bytes(page, len, 8);
    CHECK(counts.samples == 3);
    CHECK(fabs(found[0].value - 0.0015) < 1e-18 && isnan(found[1].value) &&
          found[2].value == -INFINITY);
}

static void test_numbers(void)
{
    const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},
                {"-0.5", -0.5},
                {"9223372036854775792", 9223372036854775808.0},
                {".5", 0.5},
                {"5.", 5},
                {"1.79595284309e+09", 1795952843.09},
                {"0.9490196078431372", 0.9490196078431372},
                {"1e400", INFINITY},
                {"1e-400", 0},
                {"1E5", 1e5},
                {"+inf", INFINITY},
                {"-Infinity", -INFINITY},
                {"140737488355328.0", 0x1p47},
                {"123456789012345678901234567890", 123456789012345678901234567890.0},
                {"0.000000000000000000000000001", 1e-27}};
    double value;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(promtext_number(good[i].text, strlen(good[i].text), &value) == strlen(good[i].text));
        CHECK(value == good[i].value);
    }
    CHECK(promtext_number("", 0, &value) == 0 && promtext_number("-", 1, &value) == 0);
    CHECK(promtext_number("e5", 2, &value) == 0 && promtext_number("in", 2, &value) == 0);
    CHECK(promtext_number("1e+", 3, &value) == 1 && value == 1);
}

static void test_bad_tables_are_refused(void)
{
    static struct promtext_name many[PROMTEXT_NAMES_MAX + 1];
    static char texts[PROMTEXT_NAMES_MAX + 1][8];
    const struct promtext_name twice[] = {{"up", 2}, {"up", 2}}, empty[] = {{"", 0}};
    const struct promtext_name is_long[] = {{"x", PROMTEXT_NAME_LEN_MAX + 1}};
    struct promtext_table other;
    for (int i = 0; i <= PROMTEXT_NAMES_MAX; i++)
        many[i] = (struct promtext_name){texts[i],
                                         (uint32_t)snprintf(texts[i], sizeof texts[i], "n%d", i)};
    CHECK(promtext_prepare(&other, many, PROMTEXT_NAMES_MAX) == 0);
    CHECK(promtext_prepare(&other, many, PROMTEXT_NAMES_MAX + 1) == -1);
    CHECK(promtext_prepare(&other, twice, 2) == -1);
    CHECK(promtext_prepare(&other, empty, 1) == -1);
    CHECK(promtext_prepare(&other, is_long, 1) == -1);
}

int main(void)
{
    CHECK(promtext_prepare(&table, NAMES, 3) == 0);
    test_wanted_lines_are_found_and_others_are_not();
    test_loose_spelling_is_read();
    test_broken_wanted_lines_are_counted();
    test_a_full_array_counts_what_it_leaves_out();
    test_every_prefix_of_a_page_is_safe();
    test_numbers();
    test_bad_tables_are_refused();
    return 0;
}
