#include "prefix.h"

#include "atom.h"

enum {
    SLOT_BITS = 10,
    TAG_SHIFT = PREFIX_COUNT_BITS + SLOT_BITS,
    AHEAD = 64, /* sets on their way from memory at one time */
};
#define COUNT_MASK ((1u << PREFIX_COUNT_BITS) - 1)

_Static_assert(FLEET_SLOTS == 1 << SLOT_BITS, "a slot fits its bits");
_Static_assert(PREFIX_WAYS * sizeof(uint64_t) == PREFIX_SET_BYTES, "a set is two cache lines");

struct prefix_table prefix_of(struct fleet *f)
{
    return (struct prefix_table){fleet_prefix(f), f->prefix_bytes / PREFIX_SET_BYTES,
                                 fleet_inserted(f, 0)};
}

uint32_t prefix_capacity(int64_t kv_capacity_tokens)
{
    int64_t blocks = kv_capacity_tokens / PREFIX_BLOCK_TOKENS;
    if (kv_capacity_tokens <= 0)
        return PREFIX_DEFAULT_CAPACITY;
    return blocks < 1 ? 1 : blocks > PREFIX_MAX_CAPACITY ? PREFIX_MAX_CAPACITY : (uint32_t)blocks;
}

static uint64_t *set_of(const struct prefix_table *t, uint64_t key)
{
    /* High half of key × sets: uniform over any number of sets, and depends on the high bits of the
     * key. */
    return t->entries + (uint64_t)(((unsigned __int128)key * t->sets) >> 64) * PREFIX_WAYS;
}

/* From the low bits, which the set does not depend on; never 0, so that no entry is the free one.
 */
static uint64_t tag_of(uint64_t key)
{
    uint64_t tag = key & 0x7fffffff;
    return (tag ? tag : 1) << TAG_SHIFT;
}

static uint32_t entry_slot(uint64_t e)
{
    return (uint32_t)(e >> PREFIX_COUNT_BITS) & (FLEET_SLOTS - 1);
}

static uint32_t age_of(const struct prefix_table *t, uint64_t e)
{
    return ((uint32_t)atom_u64(&t->inserted[entry_slot(e)]) - (uint32_t)e) & COUNT_MASK;
}

static void fetch(const struct prefix_table *t, uint64_t key)
{
    const uint64_t *set = set_of(t, key);
    __builtin_prefetch(set);
    __builtin_prefetch(set + PREFIX_WAYS / 2);
}

/* Bit i is set where way i holds the tag. */
static uint32_t ways_with(const uint64_t *set, uint64_t tag)
{
    uint32_t mask = 0;
    for (int i = 0; i < PREFIX_WAYS; i++)
        mask |= (uint32_t)(((atom_u64(&set[i]) ^ tag) >> TAG_SHIFT) == 0) << i;
    return mask;
}

void prefix_lookup(const struct prefix_table *t, const uint64_t *keys, int count,
                   const uint16_t *slots, int n, const uint32_t *capacity, struct prefix_match *out)
{
    uint64_t open[FLEET_SLOTS / 64] = {0}; /* slots without a match so far */
    int left = n;
    for (int i = 0; i < n; i++) {
        out->blocks[slots[i]] = 0;
        out->age[slots[i]] = 0;
        open[slots[i] >> 6] |= 1ULL << (slots[i] & 63);
    }
    if (t->sets == 0)
        return;
    for (int i = count - 1; i >= 0 && i >= count - AHEAD; i--)
        fetch(t, keys[i]);
    for (int i = count - 1; i >= 0 && left > 0; i--) {
        const uint64_t *set = set_of(t, keys[i]);
        if (i >= AHEAD)
            fetch(t, keys[i - AHEAD]);
        for (uint32_t ways = ways_with(set, tag_of(keys[i])); ways; ways &= ways - 1) {
            uint64_t e = atom_u64(&set[__builtin_ctz(ways)]);
            uint32_t slot = entry_slot(e), age = age_of(t, e);
            uint64_t bit = 1ULL << (slot & 63);
            if (!(open[slot >> 6] & bit) || age >= capacity[slot])
                continue;
            open[slot >> 6] &= ~bit;
            out->blocks[slot] = (uint16_t)(i + 1);
            out->age[slot] = (float)age / (float)capacity[slot];
            left--;
        }
    }
}

/* The way to write to: the block's own entry on the slot, else a free one, else the one nearest to
 * its end of life. */
static int way_for(const struct prefix_table *t, const uint64_t *set, uint64_t tag, uint32_t slot,
                   const uint32_t *capacity)
{
    int worst = 0;
    float worst_age = -1;
    for (uint32_t ways = ways_with(set, tag); ways; ways &= ways - 1) {
        int way = __builtin_ctz(ways);
        if (entry_slot(atom_u64(&set[way])) == slot)
            return way;
    }
    for (int i = 0; i < PREFIX_WAYS; i++) {
        uint64_t e = atom_u64(&set[i]);
        if (e == 0)
            return i;
        float age = (float)age_of(t, e) / (float)capacity[entry_slot(e)];
        if (age > worst_age) {
            worst = i;
            worst_age = age;
        }
    }
    return worst;
}

void prefix_insert(const struct prefix_table *t, const uint64_t *keys, int count, uint32_t slot,
                   uint32_t added, const uint32_t *capacity)
{
    uint64_t now = __atomic_add_fetch(&t->inserted[slot], added, __ATOMIC_RELAXED);
    if (t->sets == 0)
        return;
    for (int i = 0; i < count && i < AHEAD; i++)
        fetch(t, keys[i]);
    for (int i = 0; i < count; i++) {
        uint64_t *set = set_of(t, keys[i]), tag = tag_of(keys[i]);
        if (i + AHEAD < count)
            fetch(t, keys[i + AHEAD]);
        atom_set_u64(&set[way_for(t, set, tag, slot, capacity)],
                     tag | (uint64_t)slot << PREFIX_COUNT_BITS | (now & COUNT_MASK));
    }
}

void prefix_advance(const struct prefix_table *t, uint32_t slot, uint32_t blocks)
{
    __atomic_fetch_add(&t->inserted[slot], blocks, __ATOMIC_RELAXED);
}

void prefix_forget(const struct prefix_table *t, uint32_t slot)
{
    __atomic_fetch_add(&t->inserted[slot], PREFIX_MAX_CAPACITY, __ATOMIC_RELAXED);
}

void prefix_remove(const struct prefix_table *t, const uint64_t *keys, int count, uint32_t slot)
{
    for (int i = 0; i < count && t->sets > 0; i++) {
        uint64_t *set = set_of(t, keys[i]);
        for (uint32_t ways = ways_with(set, tag_of(keys[i])); ways; ways &= ways - 1) {
            uint64_t *way = &set[__builtin_ctz(ways)], e = atom_u64(way);
            if (entry_slot(e) == slot) /* one that was renewed meanwhile stays */
                __atomic_compare_exchange_n(way, &e, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        }
    }
}

uint64_t prefix_sweep(const struct prefix_table *t, uint64_t from, uint64_t n,
                      const uint32_t *capacity)
{
    uint64_t alive = 0;
    for (uint64_t i = from * PREFIX_WAYS, end = (from + n) * PREFIX_WAYS;
         i < end && i < t->sets * PREFIX_WAYS; i++) {
        uint64_t e = atom_u64(&t->entries[i]);
        if (e == 0)
            continue;
        if (age_of(t, e) < capacity[entry_slot(e)])
            alive++;
        else /* a process may have renewed it meanwhile: then it stays */
            __atomic_compare_exchange_n(&t->entries[i], &e, 0, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED);
    }
    return alive;
}
