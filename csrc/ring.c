#include "ring.h"

#include <string.h>

#include "atom.h"

static void copy_in(struct ring *r, uint64_t at, const void *src, uint64_t len)
{
    uint64_t from = at & (RING_BYTES - 1);
    uint64_t first = len < RING_BYTES - from ? len : RING_BYTES - from;
    memcpy(r->data + from, src, first);
    memcpy(r->data, (const char *)src + first, len - first);
}

static void copy_out(const struct ring *r, uint64_t at, void *dst, uint64_t len)
{
    uint64_t from = at & (RING_BYTES - 1);
    uint64_t first = len < RING_BYTES - from ? len : RING_BYTES - from;
    memcpy(dst, r->data + from, first);
    memcpy((char *)dst + first, r->data, len - first);
}

int ring_push(struct ring *r, uint32_t kind, const void *record, uint32_t len)
{
    uint64_t need = 8 + (((uint64_t)len + 7) & ~7ULL);
    uint64_t tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
    uint32_t prefix[2] = {len, kind};
    if (need > RING_BYTES - (r->head - tail)) {
        atom_add_u64(&r->dropped, 1);
        return -1;
    }
    copy_in(r, r->head, prefix, 8);
    copy_in(r, r->head + 8, record, len);
    __atomic_store_n(&r->head, r->head + need, __ATOMIC_RELEASE);
    return 0;
}

int32_t ring_pop(struct ring *r, uint32_t *kind, void *out, uint32_t room)
{
    uint64_t head = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
    uint64_t at = r->tail;
    uint32_t prefix[2];
    int32_t result;
    if (at == head)
        return -1;
    copy_out(r, at, prefix, 8);
    if (prefix[0] > RING_BYTES || 8 + (uint64_t)prefix[0] > head - at) {
        __atomic_store_n(
            &r->tail, head,
            __ATOMIC_RELEASE); /* a producer died in mid-write and left nonsense: start afresh */
        return -1;
    }
    *kind = prefix[1];
    result = prefix[0] <= room ? (int32_t)prefix[0] : -2;
    if (result >= 0)
        copy_out(r, at + 8, out, prefix[0]);
    __atomic_store_n(&r->tail, at + 8 + (((uint64_t)prefix[0] + 7) & ~7ULL), __ATOMIC_RELEASE);
    return result;
}
