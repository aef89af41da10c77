/* The retry budget of all processes: a token bucket in one 64-bit word, so that a withdrawal is one
 * compare-and-swap.
 *
 * Each request deposits `ratio` tokens, each second `min_per_s`; a retry withdraws one before it
 * waits out its back-off, so waiting retries count. Unused tokens fade with a time constant of
 * BUDGET_TTL_S (Finagle and tower let deposits expire after their window; a single word cannot hold
 * a window, a decay can).
 *
 * Bound: between two moments t1 < t2 there are at most balance(t1) + ratio × requests + min_per_s ×
 * (t2 - t1) retries, and balance(0) is one second of the floor. The balance itself never exceeds
 * BUDGET_TTL_S × (ratio × requests/s + min_per_s). */
#ifndef HEADRACE_BUDGET_H
#define HEADRACE_BUDGET_H

#include <stdint.h>

enum { BUDGET_TTL_S = 10 };

void budget_deposit(uint64_t *word, double ratio, double min_per_s, uint64_t now_ns);

/* 0, or -1 when less than one token is left. */
int budget_withdraw(uint64_t *word, double min_per_s, uint64_t now_ns);

/* Tokens at now_ns; changes nothing. */
double budget_balance(const uint64_t *word, double min_per_s, uint64_t now_ns);

#endif
