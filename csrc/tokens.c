#include "tokens.h"

#include <math.h>

#include "atom.h"
#include "solve.h"

const double tokens_prior[FLEET_FEATURES] = {
    [TOKEN_LETTERS] = 0.10,   [TOKEN_WORDS] = 0.65,      [TOKEN_DIGITS] = 0.60,
    [TOKEN_SPACES] = 0.03,    [TOKEN_SPACE_RUNS] = 0.05, [TOKEN_MARKS] = 0.30,
    [TOKEN_MARK_RUNS] = 0.60, [TOKEN_LATIN] = 0.45,      [TOKEN_CJK] = 0.75,
    [TOKEN_OTHER] = 1.5,      [TOKEN_MESSAGES] = 4,      [TOKEN_EXACT] = 1,
};

enum { TEXT_FEATURES = TOKEN_EXACT };

#define LEAST_SCALE 16.0 /* tokens; below, errors count absolutely */
#define MOST_FACTOR 4.0
#define NOISE 0.1        /* relative error of a sample that is no fault of the weights */
#define PRIOR_SPREAD 0.6 /* standard deviation of a weight, as a part of its prior */

static double dot(const double *weights, const double *features, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += weights[i] * features[i];
    return sum;
}

double tokens_estimate(const double *weights, const double *features)
{
    double text = dot(weights, features, TEXT_FEATURES),
           usual = dot(tokens_prior, features, TEXT_FEATURES);
    if (!(text >= usual / MOST_FACTOR))
        text = usual / MOST_FACTOR;
    if (text > usual * MOST_FACTOR)
        text = usual * MOST_FACTOR;
    return fmax(text + features[TOKEN_EXACT], 1);
}

void tokens_learn(struct group_cell *g, const double *features, double tokens, double keep)
{
    double scale = 1 / fmax(tokens, LEAST_SCALE);
    double rel[TEXT_FEATURES], usual = dot(tokens_prior, features, TEXT_FEATURES);
    if (features[TOKEN_EXACT] > 0 || !(tokens >= 1) || usual <= 0)
        return;
    /* No tokenizer is that far off: the figure is false, or counts what is no text (images). */
    if (usual > LEAST_SCALE && !(tokens * MOST_FACTOR >= usual && tokens <= usual * MOST_FACTOR))
        return;
    for (int i = 0; i < TEXT_FEATURES; i++)
        rel[i] = features[i] * scale;
    for (int i = 0; i < TEXT_FEATURES; i++) {
        for (int j = 0; j <= i; j++) {
            double *sum = &g->token_xx[solve_at(i, j)];
            atom_set_f64(sum, *sum * keep + rel[i] * rel[j]);
        }
        atom_set_f64(&g->token_xy[i], g->token_xy[i] * keep + rel[i] * tokens * scale);
    }
    atom_set_f64(&g->token_w, g->token_w * keep + 1);
}

/* Ridge towards the prior b0: (X'X + L)·b = X'y + L·b0 with L = (noise / spread of the weight)². */
void tokens_solve(const struct group_cell *sums, double *weights)
{
    double a[TEXT_FEATURES * (TEXT_FEATURES + 1) / 2], b[TEXT_FEATURES], x[TEXT_FEATURES];
    for (int i = 0; i < TEXT_FEATURES; i++) {
        double pull = NOISE / (PRIOR_SPREAD * tokens_prior[i]);
        for (int j = 0; j <= i; j++)
            a[solve_at(i, j)] = sums->token_xx[solve_at(i, j)];
        a[solve_at(i, i)] += pull * pull;
        b[i] = sums->token_xy[i] + pull * pull * tokens_prior[i];
    }
    if (solve_spd(a, b, x, TEXT_FEATURES) != 0)
        return;
    for (int i = 0; i < TEXT_FEATURES; i++)
        weights[i] = x[i];
}
