#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static int options_read(struct load_options *o, int argc, char **argv)
{
    static const struct option names[] = {{"port", required_argument, NULL, 'p'},
                                          {"connections", required_argument, NULL, 'c'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"body-bytes", required_argument, NULL, 'b'},
                                          {"rate", required_argument, NULL, 'r'},
                                          {"stream", no_argument, NULL, 'S'},
                                          {"events", required_argument, NULL, 'e'},
                                          {"spread-us", required_argument, NULL, 'u'},
                                          {"requests", required_argument, NULL, 'n'},
                                          {"spin", no_argument, NULL, 'P'},
                                          {0}};
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'p': o->port = atoi(optarg); break;
        case 'c': o->connections = atoi(optarg); break;
        case 's': o->seconds = atof(optarg); break;
        case 'b': o->body_bytes = strtoull(optarg, NULL, 10); break;
        case 'r': o->rate_per_s = atof(optarg); break;
        case 'S': o->stream = 1; break;
        case 'P': o->spin = 1; break;
        case 'e': o->events = strtoull(optarg, NULL, 10); break;
        case 'u': o->spread_ns = strtoull(optarg, NULL, 10) * 1000; break;
        case 'n': o->max_requests = strtoull(optarg, NULL, 10); break;
        default: return -1;
        }
    }
    return 0;
}

static int options_are_sane(const struct load_options *o)
{
    return o->port > 0 && o->connections > 0 && o->body_bytes >= 256 && o->body_bytes <= 1000000 &&
           o->events >= 3;
}

int options_parse(struct load_options *options, int argc, char **argv)
{
    *options = (struct load_options){.connections = 64,
                                     .seconds = 5,
                                     .body_bytes = 1024,
                                     .events = 100,
                                     .max_requests = UINT64_MAX};
    if (options_read(options, argc, argv) == 0 && options_are_sane(options))
        return 0;
    fprintf(stderr, "usage: generate --port P [--connections N] [--seconds S] [--requests N]\n"
                    "                [--body-bytes 256-1000000] [--rate R] [--stream]\n"
                    "                [--events N] [--spread-us N] [--spin]\n");
    return -1;
}
