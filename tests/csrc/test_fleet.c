#include "fleet.h"

#include <pthread.h>
#include <string.h>

#include "check.h"

static struct fleet *new_fleet(uint32_t processes, uint64_t prefix_bytes)
{
    struct fleet *f = calloc(1, fleet_size(processes, prefix_bytes));
    CHECK(f);
    fleet_init(f, processes, prefix_bytes);
    return f;
}

/* Each part lies behind the one before and inside the mapping. */
static void the_parts_do_not_overlap(void)
{
    for (uint32_t processes = 1; processes <= 8; processes++) {
        struct fleet *f = new_fleet(processes, 1 << 16);
        char *at = (char *)f;
        const struct {
            void *from, *to;
        } parts[] = {
            {f, f + 1},
            {fleet_row(f, 0), fleet_row(f, FLEET_SLOTS)},
            {fleet_inserted(f, 0), fleet_inserted(f, FLEET_SLOTS)},
            {fleet_block(f, 0), fleet_block(f, processes + 1)},
            {fleet_ring(f, 0), fleet_ring(f, processes)},
            {fleet_prefix(f), (char *)fleet_prefix(f) + f->prefix_bytes},
            {fleet_blob(f, 0), fleet_blob(f, 1)},
            {fleet_blob(f, 1), fleet_blob(f, 2)},
        };
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            CHECK((char *)parts[i].from >= at);
            at = parts[i].to;
        }
        CHECK(at <= (char *)f + f->bytes);
        CHECK(fleet_check(f, f->bytes) == 0 && fleet_check(f, f->bytes - 1) != 0);
        f->version++;
        CHECK(fleet_check(f, f->bytes) != 0);
        free(f);
    }
}

static void a_torn_row_is_not_read(void)
{
    struct row r = {0}, copy = {0}, src = {.generation = 7, .weight = 2};
    row_write(&r, &src);
    CHECK(row_read(&r, &copy) == 0 && copy.generation == 7 && copy.weight == 2);
    r.seq++; /* control is in the middle of a change */
    copy.generation = 99;
    CHECK(row_read(&r, &copy) == -1 && copy.generation == 99);
}

static void *write_rows(void *at)
{
    for (int i = 0; i < 200000; i++) {
        struct row src = {.generation = (uint32_t)i, .running = i, .weight = i, .kv_usage = i};
        row_write(at, &src);
    }
    return NULL;
}

static void a_reader_never_sees_half_a_row(void)
{
    struct row r = {0}, copy = {0};
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, write_rows, &r) == 0);
    for (int i = 0; i < 200000; i++)
        if (row_read(&r, &copy) == 0)
            CHECK(copy.running == (int32_t)copy.generation && copy.weight == copy.running &&
                  copy.kv_usage == copy.weight);
    pthread_join(writer, NULL);
}

static void a_dead_process_leaves_its_counters_and_takes_its_in_flight(void)
{
    struct fleet *f = new_fleet(2, 0);
    struct process_block *b = fleet_block(f, 1), *archive = fleet_block(f, 2);
    b->cells[5].requests = 3;
    b->cells[5].sent = 10;
    b->cells[5].failures[FAILURE_CUT] = 2;
    b->cells[5].slow_w = 1;
    b->cells[5].slow_wx = 2;
    b->cells[5].slow_at_ns = 77;
    b->cells[5].slow_generation = 4;
    b->groups[1].pace[0] = 1.5;
    b->groups[1].token_xy[FLEET_FEATURES - 1] = 2.5;
    b->self.requests = 3;
    series_add(b->series, series_key(SERIES_RETRIES, 1, 0, 0, 0), 4);
    CHECK(fleet_requests(f, 5) == 3);
    fleet_retire(f, 1);
    CHECK(fleet_requests(f, 5) == 0 && b->self.requests == 0 && b->cells[5].sent == 0);
    CHECK(archive->cells[5].sent == 10 && archive->cells[5].failures[FAILURE_CUT] == 2);
    CHECK(archive->cells[5].slow_wx == 2 && archive->cells[5].slow_generation == 4);
    CHECK(archive->groups[1].pace[0] == 1.5 &&
          archive->groups[1].token_xy[FLEET_FEATURES - 1] == 2.5);
    uint64_t found = 0;
    for (int i = 0; i < SERIES_SLOTS; i++)
        if (archive->series[i].key == series_key(SERIES_RETRIES, 1, 0, 0, 0))
            found = archive->series[i].count;
    CHECK(found == 4);
    free(f);
}

static void sums_leave_out_the_gauges_of_the_archive(void)
{
    struct fleet *f = new_fleet(2, 0);
    struct model_cell model;
    struct pair_cell pair;
    for (uint32_t p = 0; p <= 2; p++) {
        struct process_block *b = fleet_block(f, p);
        b->models[3].queued = b->pairs[4].requests = 10;
        b->pairs[4].inflight_tokens = 5;
        b->models[3].prompt_tokens = 100 + p;
        hist_record(&b->models[3].tpot, HIST_TPOT, 0.02);
        hist_record(&b->pairs[4].ttft, HIST_TTFT, 0.2);
    }
    fleet_sum_model(f, 3, &model);
    fleet_sum_pair(f, 4, &pair);
    CHECK(model.queued == 20 && pair.requests == 20 && pair.inflight_tokens == 10);
    CHECK(model.prompt_tokens == 303);
    CHECK(model.tpot.sum > 0.059 && model.tpot.sum < 0.061);
    CHECK(pair.ttft.sum > 0.59 && pair.ttft.sum < 0.61);
    free(f);
}

static void series_beyond_the_table_count_as_other(void)
{
    struct series *table = calloc(SERIES_SLOTS, sizeof *table);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 3 * SERIES_SLOTS; i++)
        series_add(table, series_key(SERIES_REQUESTS, i, 0, 0, 1), 1);
    for (int i = 0; i < SERIES_SLOTS; i++)
        sum += table[i].count;
    CHECK(sum == 3 * SERIES_SLOTS && table[SERIES_SLOTS - 1].count > 0);
    CHECK(table[SERIES_SLOTS - 1].key == series_key(SERIES_OTHER, 0, 0, 0, 0));
    free(table);
}

static void a_ring_wraps_and_counts_what_it_drops(void)
{
    struct ring *r = calloc(1, sizeof *r);
    unsigned char in[1000], out[1000];
    uint32_t kind;
    for (int i = 0; i < 5000; i++) { /* five times around */
        memset(in, i & 255, sizeof in);
        CHECK(ring_push(r, 3, in, (uint32_t)(1 + i % 1000)) == 0);
        CHECK(ring_pop(r, &kind, out, sizeof out) == 1 + i % 1000 && kind == 3);
        CHECK(memcmp(in, out, (size_t)(1 + i % 1000)) == 0);
    }
    CHECK(ring_pop(r, &kind, out, sizeof out) == -1);
    int pushed = 0;
    while (ring_push(r, 1, in, 1000) == 0)
        pushed++;
    CHECK(pushed > 1000 && r->dropped == 1);
    CHECK(ring_pop(r, &kind, out, 10) == -2); /* too long for the reader: skipped */
    for (int i = 1; i < pushed; i++)
        CHECK(ring_pop(r, &kind, out, sizeof out) == 1000);
    CHECK(ring_pop(r, &kind, out, sizeof out) == -1);
    free(r);
}

int main(void)
{
    the_parts_do_not_overlap();
    a_torn_row_is_not_read();
    a_reader_never_sees_half_a_row();
    a_dead_process_leaves_its_counters_and_takes_its_in_flight();
    sums_leave_out_the_gauges_of_the_archive();
    series_beyond_the_table_count_as_other();
    a_ring_wraps_and_counts_what_it_drops();
    return 0;
}
