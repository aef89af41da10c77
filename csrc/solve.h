/* Symmetric positive definite systems of a few unknowns. */
#ifndef HEADRACE_SOLVE_H
#define HEADRACE_SOLVE_H

enum { SOLVE_MAX = 16 };

/* Index of (row, column <= row) in a packed lower triangle. */
static inline int solve_at(int row, int column) { return row * (row + 1) / 2 + column; }

/* Solves a·x = b by Cholesky's decomposition; a is a packed lower triangle of n rows and is
 * destroyed. 0, or -1 when a is not positive definite (x is then undefined). */
int solve_spd(double *a, const double *b, double *x, int n);

#endif
