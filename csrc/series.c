#include "series.h"

#include "atom.h"

enum { OTHER = SERIES_SLOTS - 1 };

void series_add(struct series *table, uint64_t key, uint64_t n)
{
    uint64_t at = (key * 0x9E3779B97F4A7C15ULL) >> 52;
    for (int probe = 0; probe < 64; probe++, at = (at + 1) & (SERIES_SLOTS - 1)) {
        if (at == OTHER)
            continue;
        if (table[at].key == key) {
            atom_add_u64(&table[at].count, n);
            return;
        }
        if (table[at].key == 0) { /* count before key: a reader that sees the key sees the count */
            atom_set_u64(&table[at].count, n);
            __atomic_store_n(&table[at].key, key, __ATOMIC_RELEASE);
            return;
        }
    }
    if (table[OTHER].key == 0)
        __atomic_store_n(&table[OTHER].key, series_key(SERIES_OTHER, 0, 0, 0, 0), __ATOMIC_RELEASE);
    atom_add_u64(&table[OTHER].count, n);
}
