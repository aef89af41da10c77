/* Relaxed access to words in shared memory. A word with one writer needs no read-modify-write:
 * load, add, store. Readers in other processes see some recent value, never half of one (aligned
 * 32- and 64-bit words). */
#ifndef HEADRACE_ATOM_H
#define HEADRACE_ATOM_H

#include <stdint.h>

static inline uint32_t atom_u32(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline int32_t atom_i32(const int32_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline uint64_t atom_u64(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline int64_t atom_i64(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }

static inline double atom_f64(const double *p)
{
    double v;
    __atomic_load(p, &v, __ATOMIC_RELAXED);
    return v;
}

static inline void atom_set_u32(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
static inline void atom_set_u64(uint64_t *p, uint64_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
static inline void atom_set_f64(double *p, double v) { __atomic_store(p, &v, __ATOMIC_RELAXED); }

/* Single writer only. */
static inline void atom_add_u32(uint32_t *p, uint32_t d)
{
    __atomic_store_n(p, *p + d, __ATOMIC_RELAXED);
}
static inline void atom_add_i32(int32_t *p, int32_t d)
{
    __atomic_store_n(p, *p + d, __ATOMIC_RELAXED);
}
static inline void atom_add_u64(uint64_t *p, uint64_t d)
{
    __atomic_store_n(p, *p + d, __ATOMIC_RELAXED);
}
static inline void atom_add_i64(int64_t *p, int64_t d)
{
    __atomic_store_n(p, *p + d, __ATOMIC_RELAXED);
}
static inline void atom_add_f64(double *p, double d) { atom_set_f64(p, *p + d); }

#endif
