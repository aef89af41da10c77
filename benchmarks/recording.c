/* Cost of recording: ns for each kind of event that a request or a token leaves in the cells. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fleet.h"
#include "logline.h"
#include "record.h"

enum { EVENTS = 4000000, SERIES = 300 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Times of all sizes, so that the search in the bounds is not always the same. */
static double seconds_of(int i) { return (double)((unsigned)i * 7919u % 100000u) * 1e-4; }

static void histogram(struct process_block *b)
{
    for (int i = 0; i < EVENTS; i++)
        hist_record(&b->models[1 + i % 8].itl, HIST_ITL, seconds_of(i));
}

static void counter(struct process_block *b)
{
    for (int i = 0; i < EVENTS; i++)
        series_add(b->series, series_key(SERIES_REQUESTS, 1 + i % SERIES, 1, 0, 200), 1);
}

/* All that the end of a request records: outcome, duration, TPOT, queue wait, tokens. */
static void request(struct process_block *b)
{
    for (int i = 0; i < EVENTS; i++) {
        struct model_cell *m = &b->models[1 + i % 8];
        series_add(b->series, series_key(SERIES_REQUESTS, 1 + i % 8, 1, 0, 200), 1);
        hist_record(&m->duration, HIST_DURATION, seconds_of(i));
        hist_record(&m->tpot, HIST_TPOT, seconds_of(i) * 0.1);
        hist_record(&m->queue_wait, HIST_QUEUE_WAIT, seconds_of(i));
        atom_add_u64(&m->prompt_tokens, 100);
        atom_add_u64(&m->completion_tokens, 100);
    }
}

static void record(struct ring *r)
{
    static char out[4096];
    struct access_record a;
    char buffer[sizeof(a) + 32];
    uint32_t kind;
    memset(buffer, 0, sizeof(buffer));
    memset(&a, 0, sizeof(a));
    for (int i = 0; i < EVENTS; i++) {
        a.end_unix_ns = (uint64_t)i;
        memcpy(buffer, &a, sizeof(a));
        ring_push(r, RECORD_ACCESS, buffer, sizeof(buffer));
        ring_pop(r, &kind, out, sizeof(out));
    }
}

/* What control does with a record after it has popped it. */
static void line(void)
{
    static const struct logline_value model = {"\"llama-3-8b\"", 12};
    static const struct logline_value slot = {"\"10.0.0.1:8000\"", 15};
    static const struct logline_value other = {"\"other\"", 7};
    static char out[8192];
    struct logline l = {
        .policy = other,
        .endpoints = {NULL, 0, other},
        .outcomes = {NULL, 0, other},
        .reasons = {NULL, 0, other},
        .models = {&model, 1, other},
        .replicas = {&slot, 1, other},
    };
    struct access_record a = {.end_unix_ns = 1700000000123456789, .ttft_ns = 87654321};
    char buffer[sizeof(a) + 32];
    a.tpot_s = 0.0123456789;
    a.text_bytes = 32;
    memset(buffer, 'a', sizeof(buffer));
    logline_prepare(&l);
    for (int i = 0; i < EVENTS; i++) {
        a.duration_ns = (uint64_t)i * 1001;
        memcpy(buffer, &a, sizeof(a));
        if (logline_write(&l, buffer, sizeof(buffer), out, sizeof(out)) <= 0)
            abort();
    }
}

int main(void)
{
    struct process_block *block = calloc(1, sizeof(*block));
    struct ring *ring = calloc(1, sizeof(*ring));
    double start;
    if (block == NULL || ring == NULL)
        return 1;
#define ROW(name, call)                                                                            \
    start = now_ns();                                                                              \
    call;                                                                                          \
    printf("%-46s %6.1f ns\n", name, (now_ns() - start) / EVENTS)
    ROW("histogram sample (each token event)", histogram(block));
    ROW("counter, 300 series", counter(block));
    ROW("end of a request: counter, 3 histograms, tokens", request(block));
    ROW("access record through the ring, pushed and popped", record(ring));
    ROW("access record written as a line of the log", line());
    free(ring);
    free(block);
    return 0;
}
