#ifndef LOADGEN_OPTIONS_H
#define LOADGEN_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

struct load_options {
    int port;
    int connections;
    int stream; /* ask for streams */
    int spin;   /* never sleep */
    double seconds;
    double rate_per_s; /* 0: closed loop */
    size_t body_bytes; /* of a request */
    size_t events;     /* of a stream */
    uint64_t spread_ns;
    uint64_t max_requests;
};

/* -1 and the usage on stderr if the arguments make no sense. */
int options_parse(struct load_options *options, int argc, char **argv);

#endif
