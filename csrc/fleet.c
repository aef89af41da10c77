#include "fleet.h"

#include <string.h>

#include "atom.h"

enum { PAGE = 4096, ROW_TRIES = 8 };

static uint64_t page_up(uint64_t n) { return (n + PAGE - 1) & ~(uint64_t)(PAGE - 1); }

static void layout(struct fleet *f, uint32_t processes, uint64_t prefix_bytes)
{
    uint64_t at = page_up(sizeof *f);
    f->rows_at = at;
    at = page_up(at + sizeof(struct row) * FLEET_SLOTS);
    f->inserted_at = at;
    at = page_up(at + sizeof(uint64_t) * FLEET_SLOTS);
    f->blocks_at = at;
    at = page_up(at + sizeof(struct process_block) * (processes + 1));
    f->rings_at = at;
    at = page_up(at + sizeof(struct ring) * processes);
    f->prefix_at = at;
    at = page_up(at + prefix_bytes);
    f->blobs_at = at;
    f->bytes = at + 2ULL * FLEET_BLOB_BYTES;
    f->processes = processes;
    f->prefix_bytes = prefix_bytes;
}

uint64_t fleet_size(uint32_t processes, uint64_t prefix_bytes)
{
    struct fleet f = {0};
    layout(&f, processes, prefix_bytes);
    return f.bytes;
}

void fleet_init(struct fleet *f, uint32_t processes, uint64_t prefix_bytes)
{
    layout(f, processes, prefix_bytes);
    f->version = FLEET_VERSION;
    __atomic_store_n(&f->magic, FLEET_MAGIC, __ATOMIC_RELEASE);
}

int fleet_check(const struct fleet *f, uint64_t bytes)
{
    if (bytes < sizeof *f || __atomic_load_n(&f->magic, __ATOMIC_ACQUIRE) != FLEET_MAGIC ||
        f->version != FLEET_VERSION)
        return -1;
    return f->bytes == bytes && f->processes <= FLEET_PROCESSES &&
                   f->bytes == fleet_size(f->processes, f->prefix_bytes)
               ? 0
               : -1;
}

/* The words between seq and the end, one access each, so that no word is ever half. Stores release
 * and loads acquire: who loads a word of a change under way also sees the odd seq that came before
 * it. */
static void copy_words(void *dst, const void *src)
{
    uint32_t *d = dst;
    const uint32_t *s = src;
    for (size_t i = 1; i < sizeof(struct row) / 4; i++)
        __atomic_store_n(d + i, __atomic_load_n(s + i, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

void row_write(struct row *r, const struct row *src)
{
    uint32_t seq = atom_u32(&r->seq);
    atom_set_u32(&r->seq, seq + 1);
    copy_words(r, src);
    __atomic_store_n(&r->seq, seq + 2, __ATOMIC_RELEASE);
}

int row_read(const struct row *r, struct row *out)
{
    struct row copy;
    for (int tries = 0; tries < ROW_TRIES; tries++) {
        uint32_t before = __atomic_load_n(&r->seq, __ATOMIC_ACQUIRE);
        copy_words(&copy, r);
        if (!(before & 1) && atom_u32(&r->seq) == before) {
            copy.seq = before;
            *out = copy;
            return 0;
        }
    }
    return -1;
}

static void retire_cell(struct cell *to, const struct cell *from)
{
    to->sent += from->sent;
    to->succeeded += from->succeeded;
    to->cancelled += from->cancelled;
    to->neutral += from->neutral;
    to->completed_tokens += from->completed_tokens;
    for (int i = 0; i < FAILURES; i++)
        to->failures[i] += from->failures[i];
    if (from->ok_ns > to->ok_ns)
        to->ok_ns = from->ok_ns;
    if (from->failed_ns > to->failed_ns)
        to->failed_ns = from->failed_ns;
    if (from->slow_at_ns >
        to->slow_at_ns) { /* the newer view of the replica's speed wins: both weigh at most 1 */
        to->slow_w = from->slow_w;
        to->slow_wx = from->slow_wx;
        to->slow_at_ns = from->slow_at_ns;
        to->clean_at_ns = from->clean_at_ns;
        to->slow_generation = from->slow_generation;
    }
}

/* Counters and histograms; the gauge is left alone. */
static void add_model(struct model_cell *to, const struct model_cell *from)
{
    to->prompt_tokens += atom_u64(&from->prompt_tokens);
    to->completion_tokens += atom_u64(&from->completion_tokens);
    to->estimated_prompt_tokens += atom_u64(&from->estimated_prompt_tokens);
    to->cached_tokens += atom_u64(&from->cached_tokens);
    hist_merge(&to->duration, &from->duration);
    hist_merge(&to->tpot, &from->tpot);
    hist_merge(&to->itl, &from->itl);
    hist_merge(&to->queue_wait, &from->queue_wait);
}

static void retire_group(struct group_cell *to, const struct group_cell *from)
{
    to->pace_samples += from->pace_samples;
    to->prefill_samples += from->prefill_samples;
    /* All that follows is sums of doubles up to the end of the struct. */
    double *d = to->pace;
    const double *s = from->pace;
    size_t n = (sizeof *to - offsetof(struct group_cell, pace)) / sizeof(double);
    for (size_t i = 0; i < n; i++)
        d[i] += s[i];
}

void fleet_retire(struct fleet *f, uint32_t process)
{
    struct process_block *from = fleet_block(f, process), *to = fleet_block(f, f->processes);
    to->self.accepted += from->self.accepted;
    to->self.row_misses += from->self.row_misses;
    to->self.bad_http += from->self.bad_http;
    hist_merge(&to->self.overhead, &from->self.overhead);
    for (uint32_t i = 0; i < FLEET_SLOTS; i++)
        if (from->cells[i].sent)
            retire_cell(&to->cells[i], &from->cells[i]);
    for (uint32_t i = 0; i < FLEET_PAIRS; i++)
        hist_merge(&to->pairs[i].ttft, &from->pairs[i].ttft);
    for (uint32_t i = 0; i < FLEET_MODELS; i++)
        add_model(&to->models[i], &from->models[i]);
    for (uint32_t i = 0; i < FLEET_GROUPS; i++)
        retire_group(&to->groups[i], &from->groups[i]);
    for (uint32_t i = 0; i < SERIES_SLOTS; i++)
        if (from->series[i].key)
            series_add(to->series, from->series[i].key, from->series[i].count);
    memset(from, 0, sizeof *from);
}

int64_t fleet_requests(struct fleet *f, uint32_t slot)
{
    int64_t sum = 0;
    for (uint32_t p = 0; p < f->processes; p++)
        sum += atom_i32(&fleet_block(f, p)->cells[slot].requests);
    return sum;
}

void fleet_sum_model(struct fleet *f, uint32_t model, struct model_cell *total)
{
    memset(total, 0, sizeof *total);
    for (uint32_t p = 0; p < f->processes; p++)
        total->queued += atom_i32(&fleet_block(f, p)->models[model].queued);
    for (uint32_t p = 0; p <= f->processes; p++)
        add_model(total, &fleet_block(f, p)->models[model]);
}

void fleet_sum_pair(struct fleet *f, uint32_t pair, struct pair_cell *total)
{
    memset(total, 0, sizeof *total);
    for (uint32_t p = 0; p < f->processes; p++) {
        const struct pair_cell *c = &fleet_block(f, p)->pairs[pair];
        total->requests += atom_i32(&c->requests);
        total->inflight_tokens += atom_f64(&c->inflight_tokens);
    }
    for (uint32_t p = 0; p <= f->processes; p++)
        hist_merge(&total->ttft, &fleet_block(f, p)->pairs[pair].ttft);
}
