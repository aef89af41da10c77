/* The segment: everything that control plane and processes share, in one mapping without locks.
 *
 *   header | rows | counters | cells of process 0 … N-1, archive | rings | prefix table | two blobs
 *
 * Writers: rows and blobs: control. A process block: that process alone (the archive block: the
 * supervisor). Words with several writers are named `shared_…` and are changed by atomic
 * read-modify-write only. Readers never wait. docs/shared-memory.md draws this; a test holds the
 * drawing against the sizes below. */
#ifndef HEADRACE_FLEET_H
#define HEADRACE_FLEET_H

#include <stddef.h>
#include <stdint.h>

#include "hist.h"
#include "ring.h"
#include "series.h"

#define FLEET_MAGIC 0x31656361726461ULL /* "adrace1" */

enum {
    FLEET_VERSION = 1,
    FLEET_SLOTS = 1024,
    FLEET_PAIRS = 4096,   /* (slot, model) pairs with series of their own; pair 0 is `other` */
    FLEET_MODELS = 256,   /* model 0 is `other` */
    FLEET_GROUPS = 64,    /* learning groups: base models */
    FLEET_PROCESSES = 64, /* at most */
    FLEET_BLOB_BYTES = 16 << 20,
    FLEET_OUT_BUCKETS = 18, /* expected output by max_tokens: none, then by powers of two */
    FLEET_FEATURES = 12,    /* of the prompt-token estimate */
};

/* How a request ended, as metrics name it. */
enum outcome {
    OUTCOME_OK,
    OUTCOME_CLIENT_ERROR,
    OUTCOME_UPSTREAM_ERROR,
    OUTCOME_INCOMPLETE,
    OUTCOME_TIMEOUT,
    OUTCOME_CLIENT_CLOSED,
    OUTCOME_REJECTED,
    OUTCOMES
};

/* Why an attempt on a replica failed, as health judges it. Counted by replica. */
enum failure {
    FAILURE_REFUSED,      /* could not connect */
    FAILURE_CONNECT_TIME, /* connect time-out */
    FAILURE_RESET,        /* broke before a response head */
    FAILURE_STALE,        /* a reused connection was closed: says nothing about the replica */
    FAILURE_5XX,
    FAILURE_CUT,         /* broke inside a body */
    FAILURE_TIMEOUT,     /* first byte, idle or total */
    FAILURE_ERROR_EVENT, /* an error event in a stream */
    FAILURE_GOING_AWAY,  /* finish_reason abort without our hang-up, or refuses to schedule after
                            shutdown */
    FAILURE_OVERLOADED,  /* 429, 503, or such an error event: load, not sickness */
    FAILURES
};

enum row_flag {
    ROW_USED = 1,
    ROW_ELIGIBLE = 2, /* takes new requests */
    ROW_TRICKLE = 4,  /* half-open: at most one request in flight */
    ROW_FOLLOWED = 8, /* the engine tells what enters its prefix cache: control counts that */
};

/* What control knows of a replica. Guarded by seq (odd while control writes). */
struct row {
    uint32_t seq;
    uint32_t generation; /* counts restarts of the replica and reuses of the slot; 0: never used */
    uint32_t flags;
    int32_t max_concurrency;
    int32_t max_queue; /* 0: off */
    int32_t running;   /* -1: unknown */
    int32_t waiting;   /* -1: unknown */
    int32_t reserved;
    double weight; /* static × health, relative speed; > 0, or 0 for "as good as the others at 0" */
    double ramp;   /* 0…1 slow start; 1: none */
    double foreign_seqs;    /* running + waiting that are not ours, smoothed */
    double foreign_waiting; /* waiting that are not ours, smoothed */
    double kv_usage;        /* ratio; NaN: unknown */
    double hit_ratio;       /* scraped prefix-cache hit ratio of the last interval; NaN: unknown */
    int64_t kv_capacity_tokens; /* 0: unknown */
    uint64_t scraped_at_ns;     /* 0: never */
    uint64_t pad[4];
};
_Static_assert(sizeof(struct row) == 128, "a row is two cache lines");

/* What one process does on one replica. The first line holds gauges: the supervisor zeroes them
 * when the process dies. */
struct cell {
    uint32_t generation;    /* of the row when the gauges were last at zero */
    int32_t requests;       /* leases open */
    int32_t seqs;           /* sequences in flight (n × batch) */
    int32_t decoding;       /* of these, past the first token */
    double pending_tokens;  /* Q: uncached prompt tokens without a first token */
    double pending_s;       /* the same in seconds of prefill */
    double kv_tokens;       /* uncached + 0.3 × hit + generated, of all in flight */
    double inflight_tokens; /* prompt + generated */
    uint64_t busy_since_ns; /* when requests went from 0 to 1 */
    uint64_t progress_ns;   /* last byte of a response body or head from this replica */
    /* line 2: passive health */
    uint64_t sent;        /* attempts begun */
    uint64_t succeeded;   /* attempts that ended well */
    uint64_t ok_ns;       /* when the last one did */
    uint64_t failed_ns;   /* when the last failure that counts happened */
    uint32_t fail_streak; /* failures that count since the last success */
    uint32_t pad0;
    uint64_t cancelled;
    uint64_t neutral; /* 4xx answers */
    uint64_t pad1;
    /* line 3, 4 */
    uint64_t failures[FAILURES];
    uint64_t completed_tokens; /* of finished requests, for the completion rate */
    uint64_t pad2[5];
    /* line 5: slowness, decayed per sample: s = slow_wx / slow_w of the samples, relative to the
     * group's pace */
    double slow_w;
    double slow_wx;
    uint64_t slow_at_ns;      /* last sample */
    uint64_t clean_at_ns;     /* last sample with no prefill of ours pending */
    uint32_t slow_generation; /* of the replica these were learned from */
    uint32_t pad3;
    uint64_t pad4[3];
};
_Static_assert(sizeof(struct cell) == 320, "a cell is five cache lines");

/* (slot, model): series of the metrics page. */
struct pair_cell {
    int32_t requests;
    int32_t pad;
    double inflight_tokens;
    struct hist ttft;
};

struct model_cell {
    int32_t queued; /* in our waiting room */
    int32_t pad;
    uint64_t prompt_tokens;
    uint64_t completion_tokens;
    uint64_t estimated_prompt_tokens;
    uint64_t cached_tokens;
    struct hist duration, tpot, itl, queue_wait;
};

/* Sums behind what is learned of a base model: decayed per sample, so that readers add the
 * processes' sums and then the prior. */
struct group_cell {
    uint64_t pace_samples, prefill_samples;
    double pace[5];    /* Σ w, w·n, w·y, w·n², w·n·y with y = gap / s */
    double prefill[5]; /* Σ w, w·x, w·y, w·x², w·x·y with x = Q + u, y = TTFT / s */
    double out_w[FLEET_OUT_BUCKETS], out_wx[FLEET_OUT_BUCKETS]; /* [0] is all requests */
    double uncached_w, uncached_wx;                             /* u at dispatch */
    double token_w; /* prompt-token calibration: normal equations */
    double token_xx[FLEET_FEATURES * (FLEET_FEATURES + 1) / 2];
    double token_xy[FLEET_FEATURES];
};

struct process_cell {
    /* gauges */
    uint64_t pid; /* 0: not running */
    uint64_t beat_ns;
    int64_t requests; /* in the gateway, from head read to end */
    int64_t queued;   /* in the waiting room */
    int64_t connections;
    int64_t buffered_bytes;
    uint32_t draining;
    uint32_t blob_seen; /* generation of the blob in force there */
    /* counters */
    uint64_t accepted;
    uint64_t row_misses; /* a row that could not be read in a few tries */
    uint64_t bad_http;
    struct hist overhead;
    int64_t held;    /* a gauge: of `queued`, those whose model has no replica */
    uint64_t pad[4]; /* cells begin on a cache line */
};

_Static_assert(sizeof(struct process_cell) % 64 == 0, "cells begin on a cache line");

/* All that one process writes. */
struct process_block {
    struct process_cell self;
    struct cell cells[FLEET_SLOTS];
    struct pair_cell pairs[FLEET_PAIRS];
    struct model_cell models[FLEET_MODELS];
    struct group_cell groups[FLEET_GROUPS];
    struct series series[SERIES_SLOTS];
};

struct fleet {
    uint64_t magic;
    uint32_t version;
    uint32_t processes;
    uint64_t bytes; /* of the whole mapping */
    uint64_t prefix_bytes;
    uint64_t rows_at, inserted_at, blocks_at, rings_at, prefix_at,
        blobs_at; /* offsets from the start */
    /* control → processes */
    uint64_t
        blob_generation; /* the blob in force lies in buffer blob_generation & 1; 0: none yet */
    uint64_t blob_bytes[2];
    uint64_t control_beat_ns;
    uint32_t draining; /* SIGTERM was received: readiness is 503 */
    uint32_t serving;  /* replicas that take traffic */
    uint64_t pad[9];
    /* shared words, a cache line each */
    uint64_t shared_budget; /* retry budget, see budget.h */
    uint64_t pad1[7];
};

_Static_assert(offsetof(struct fleet, shared_budget) % 64 == 0 && sizeof(struct fleet) % 64 == 0 &&
                   sizeof(struct process_block) % 64 == 0,
               "what has several writers has a cache line of its own");

uint64_t fleet_size(uint32_t processes, uint64_t prefix_bytes);

/* Lays the segment out in zeroed memory of fleet_size bytes. */
void fleet_init(struct fleet *f, uint32_t processes, uint64_t prefix_bytes);

/* 0 if the mapping was made by this version and is whole, else -1. */
int fleet_check(const struct fleet *f, uint64_t bytes);

static inline struct row *fleet_row(struct fleet *f, uint32_t slot)
{
    return (struct row *)((char *)f + f->rows_at) + slot;
}

/* Blocks inserted into each slot's prefix cache, by all processes: fetch-add. */
static inline uint64_t *fleet_inserted(struct fleet *f, uint32_t slot)
{
    return (uint64_t *)((char *)f + f->inserted_at) + slot;
}

/* process == f->processes is the archive. */
static inline struct process_block *fleet_block(struct fleet *f, uint32_t process)
{
    return (struct process_block *)((char *)f + f->blocks_at) + process;
}

static inline struct ring *fleet_ring(struct fleet *f, uint32_t process)
{
    return (struct ring *)((char *)f + f->rings_at) + process;
}

static inline void *fleet_prefix(struct fleet *f) { return (char *)f + f->prefix_at; }

static inline char *fleet_blob(struct fleet *f, uint32_t buffer)
{
    return (char *)f + f->blobs_at + (uint64_t)buffer * FLEET_BLOB_BYTES;
}

/* Control only: everything of *src but seq. */
void row_write(struct row *r, const struct row *src);

/* 0, or -1 when control kept writing through several tries; out is then unchanged. */
int row_read(const struct row *r, struct row *out);

/* Folds the counters and learned sums of a dead process into the archive and zeroes its block; its
 * in-flight is gone with it. Supervisor only, after the process has been reaped. */
void fleet_retire(struct fleet *f, uint32_t process);

/* Leases open on a slot, in all processes. */
int64_t fleet_requests(struct fleet *f, uint32_t slot);

/* Sums over the processes and, for all but gauges, the archive. */
void fleet_sum_model(struct fleet *f, uint32_t model, struct model_cell *total);
void fleet_sum_pair(struct fleet *f, uint32_t pair, struct pair_cell *total);

#endif
