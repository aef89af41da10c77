#include "prefix.h"

#include <string.h>

#include "check.h"
#include "rng.h"

enum { SETS = 64 };

static uint64_t inserted[FLEET_SLOTS];
static uint32_t capacity[FLEET_SLOTS];
static struct prefix_match match;

static struct prefix_table new_table(uint64_t sets)
{
    memset(inserted, 0, sizeof inserted);
    for (int i = 0; i < FLEET_SLOTS; i++)
        capacity[i] = 100;
    return (struct prefix_table){calloc(sets * PREFIX_WAYS, 8), sets, inserted};
}

static int found(const struct prefix_table *t, const uint64_t *keys, int count, uint16_t slot)
{
    prefix_lookup(t, keys, count, &slot, 1, capacity, &match);
    return match.blocks[slot];
}

static void random_keys(struct rng *r, uint64_t *keys, int n)
{
    for (int i = 0; i < n; i++)
        keys[i] = rng_next(r);
}

static void the_deepest_block_proves_the_prefix(void)
{
    struct prefix_table t = new_table(SETS);
    struct rng r = {1};
    uint64_t keys[40];
    random_keys(&r, keys, 40);
    CHECK(found(&t, keys, 40, 3) == 0);
    prefix_insert(&t, keys, 40, 3, 40, capacity);
    prefix_insert(&t, keys, 10, 4, 10, capacity);
    CHECK(found(&t, keys, 40, 3) == 40 && found(&t, keys, 40, 4) == 10);
    CHECK(found(&t, keys, 5, 3) == 5 && found(&t, keys, 0, 3) == 0);
    CHECK(match.age[3] == 0);
    free(t.entries);
}

static void residency_ends_when_a_cache_full_came_after_it(void)
{
    struct prefix_table t = new_table(SETS);
    struct rng r = {2};
    uint64_t old[10], used[10];
    random_keys(&r, old, 10);
    random_keys(&r, used, 10);
    prefix_insert(&t, old, 10, 1, 10, capacity);
    prefix_insert(&t, used, 10, 1, 10, capacity);
    prefix_advance(&t, 1, 80); /* 90 of 100 after `old`, 80 after `used` */
    CHECK(found(&t, old, 10, 1) == 10 && match.age[1] > 0.89f);
    prefix_insert(&t, used, 10, 1, 0, capacity); /* a hit renews, and adds nothing */
    prefix_advance(&t, 1, 10);
    CHECK(found(&t, old, 10, 1) == 0 && found(&t, used, 10, 1) == 10);
    CHECK(match.age[1] > 0.09f && match.age[1] < 0.11f);
    free(t.entries);
}

static void sixteen_replicas_share_a_block(void)
{
    struct prefix_table t = new_table(SETS);
    uint64_t key = 0x123456789abcdef0;
    for (uint16_t slot = 0; slot < 16; slot++)
        prefix_insert(&t, &key, 1, slot, 1, capacity);
    for (uint16_t slot = 0; slot < 16; slot++)
        CHECK(found(&t, &key, 1, slot) == 1);
    free(t.entries);
}

static void a_forgotten_slot_holds_nothing_and_a_sweep_frees_it(void)
{
    struct prefix_table t = new_table(SETS);
    struct rng r = {3};
    uint64_t keys[64];
    random_keys(&r, keys, 64);
    for (int i = 0; i < FLEET_SLOTS; i++)
        capacity[i] = PREFIX_MAX_CAPACITY;
    for (int jumps = 1; jumps <= PREFIX_MAX_JUMPS; jumps++) {
        prefix_insert(&t, keys, 64, 2, 64, capacity);
        for (int i = 0; i < jumps; i++) {
            prefix_forget(&t, 2);
            CHECK(found(&t, keys, 64, 2) == 0);
        }
    }
    prefix_insert(&t, keys, 10, 7, 10, capacity);
    CHECK(prefix_sweep(&t, 0, SETS, capacity) == 10);
    CHECK(found(&t, keys, 10, 7) == 10);
    int used = 0;
    for (int i = 0; i < SETS * PREFIX_WAYS; i++)
        used += t.entries[i] != 0;
    CHECK(used == 10);
    free(t.entries);
}

static void it_stays_within_its_memory(void)
{
    /* ASan guards both ends of the allocation. */
    for (uint64_t sets = 1; sets <= 7; sets += 3) {
        struct prefix_table t = new_table(sets);
        struct rng r = {sets};
        uint64_t keys[8];
        for (int n = 0; n < 5000; n++) {
            random_keys(&r, keys, 8);
            keys[0] = n & 1 ? 0 : UINT64_MAX;
            prefix_insert(&t, keys, 8, (uint32_t)n % FLEET_SLOTS, 8, capacity);
            found(&t, keys, 8, (uint16_t)(n % FLEET_SLOTS));
        }
        free(t.entries);
    }
    struct prefix_table none = {NULL, 0, inserted};
    uint64_t key = 1;
    prefix_insert(&none, &key, 1, 0, 1, capacity);
    CHECK(found(&none, &key, 1, 0) == 0);
}

static void a_key_of_zero_is_a_key(void)
{
    struct prefix_table t = new_table(SETS);
    uint64_t key = 0;
    CHECK(found(&t, &key, 1, 0) == 0); /* the free entry is no match */
    prefix_insert(&t, &key, 1, 0, 0, capacity);
    CHECK(found(&t, &key, 1, 0) == 1);
    free(t.entries);
}

static void what_is_removed_is_gone_from_its_slot_alone(void)
{
    struct prefix_table t = new_table(SETS), none = new_table(0);
    struct rng r = {11};
    uint64_t keys[20], others[5];
    random_keys(&r, keys, 20);
    random_keys(&r, others, 5);
    prefix_insert(&t, keys, 20, 1, 20, capacity);
    prefix_insert(&t, keys, 20, 2, 20, capacity);
    prefix_remove(&t, keys + 15, 5, 1);
    prefix_remove(&t, others, 5, 1);
    CHECK(found(&t, keys, 20, 1) == 15 && found(&t, keys, 20, 2) == 20);
    prefix_remove(&t, keys, 20, 1);
    CHECK(found(&t, keys, 20, 1) == 0 && found(&t, keys, 20, 2) == 20);
    prefix_insert(&t, keys, 20, 1, 20, capacity);
    CHECK(found(&t, keys, 20, 1) == 20);
    prefix_remove(&none, keys, 20, 1);
    free(t.entries);
    free(none.entries);
}

static void capacity_is_bounded(void)
{
    CHECK(prefix_capacity(0) == PREFIX_DEFAULT_CAPACITY && prefix_capacity(-5) == 6000);
    CHECK(prefix_capacity(1) == 1 && prefix_capacity(6400) == 100);
    CHECK(prefix_capacity(INT64_MAX) == PREFIX_MAX_CAPACITY);
}

int main(void)
{
    the_deepest_block_proves_the_prefix();
    residency_ends_when_a_cache_full_came_after_it();
    sixteen_replicas_share_a_block();
    a_forgotten_slot_holds_nothing_and_a_sweep_frees_it();
    it_stays_within_its_memory();
    a_key_of_zero_is_a_key();
    what_is_removed_is_gone_from_its_slot_alone();
    capacity_is_bounded();
    return 0;
}
