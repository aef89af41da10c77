/* A binary heap of things that are due at a time, in memory of the caller; an entry knows its
 * place, so it can be taken out. */
#ifndef HEADRACE_DUE_H
#define HEADRACE_DUE_H

#include <stdint.h>

struct due {
    uint64_t at_ns;
    void *what;
    int32_t *place; /* where the owner keeps the entry's index; -1 when it is not in the heap */
};

struct due_heap {
    struct due *entries;
    int32_t count, room;
};

/* 0, or -1 when there is no room. */
int due_push(struct due_heap *h, struct due entry);

/* The entry at a place leaves. */
void due_remove(struct due_heap *h, int32_t place);

/* What is due first, or NULL if nothing is due at now_ns; it stays. */
static inline struct due *due_first(struct due_heap *h, uint64_t now_ns)
{
    return h->count && h->entries[0].at_ns <= now_ns ? &h->entries[0] : (struct due *)0;
}

#endif
