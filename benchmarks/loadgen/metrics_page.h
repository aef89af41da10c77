/* A /metrics page of the size and form of a real vLLM's (about 50 KB, mostly histogram buckets). */
#ifndef LOADGEN_METRICS_PAGE_H
#define LOADGEN_METRICS_PAGE_H

#include <stddef.h>

/* Writes the page and returns its length; room must be at least METRICS_PAGE_ROOM. */
#define METRICS_PAGE_ROOM 131072
size_t metrics_page_write(char *page, size_t running);

#endif
