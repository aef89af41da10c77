#ifndef LOADGEN_RESULT_H
#define LOADGEN_RESULT_H

#include <stddef.h>
#include <stdint.h>

#include "latency.h"

struct result {
    uint64_t sent;
    uint64_t completed; /* status 200 and every byte as expected */
    uint64_t bad_status;
    uint64_t bad_body;
    uint64_t broken; /* framing that made no sense */
    uint64_t cut;    /* connections lost */
    uint64_t lost;   /* still without an answer long after the end */
    uint64_t events; /* of completed streams */
    uint64_t body_bytes;
    uint64_t reads;
    struct latency latency;
    struct latency first_byte; /* of the body */
};

/* One line of JSON on stdout. */
void result_print(const struct result *result, double duration_s);

/* 1 if every request was answered completely, though connections may have been cut in between. */
int result_is_good(const struct result *result);

#endif
