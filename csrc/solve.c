#include "solve.h"

#include <math.h>

static int decompose(double *a, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = a[solve_at(i, j)];
            for (int k = 0; k < j; k++)
                sum -= a[solve_at(i, k)] * a[solve_at(j, k)];
            if (i != j)
                a[solve_at(i, j)] = sum / a[solve_at(j, j)];
            else if (sum > 0 && isfinite(sum))
                a[solve_at(i, i)] = sqrt(sum);
            else
                return -1;
        }
    return 0;
}

int solve_spd(double *a, const double *b, double *x, int n)
{
    if (decompose(a, n) != 0)
        return -1;
    for (int i = 0; i < n; i++) {
        double sum = b[i];
        for (int k = 0; k < i; k++)
            sum -= a[solve_at(i, k)] * x[k];
        x[i] = sum / a[solve_at(i, i)];
    }
    for (int i = n - 1; i >= 0; i--) {
        double sum = x[i];
        for (int k = i + 1; k < n; k++)
            sum -= a[solve_at(k, i)] * x[k];
        x[i] = sum / a[solve_at(i, i)];
    }
    return 0;
}
