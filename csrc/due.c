#include "due.h"

static void put(struct due_heap *h, int32_t place, struct due entry)
{
    h->entries[place] = entry;
    *entry.place = place;
}

static int32_t rise(struct due_heap *h, int32_t at, uint64_t at_ns)
{
    for (int32_t up; at > 0 && h->entries[up = (at - 1) / 2].at_ns > at_ns; at = up)
        put(h, at, h->entries[up]);
    return at;
}

static int32_t sink(struct due_heap *h, int32_t at, uint64_t at_ns)
{
    for (int32_t down; (down = 2 * at + 1) < h->count; at = down) {
        if (down + 1 < h->count && h->entries[down + 1].at_ns < h->entries[down].at_ns)
            down++;
        if (h->entries[down].at_ns >= at_ns)
            break;
        put(h, at, h->entries[down]);
    }
    return at;
}

int due_push(struct due_heap *h, struct due entry)
{
    if (h->count == h->room)
        return -1;
    put(h, rise(h, h->count++, entry.at_ns), entry);
    return 0;
}

void due_remove(struct due_heap *h, int32_t place)
{
    *h->entries[place].place = -1;
    struct due last = h->entries[--h->count];
    if (place == h->count)
        return;
    put(h, sink(h, rise(h, place, last.at_ns), last.at_ns), last);
}
