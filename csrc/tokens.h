/* Prompt tokens from counts of text by script class: a linear model with weights of a usual BPE
 * vocabulary to begin with, calibrated by regularised least squares against the engine's
 * usage.prompt_tokens. Errors count relative to the prompt's size. */
#ifndef HEADRACE_TOKENS_H
#define HEADRACE_TOKENS_H

#include "fleet.h"

enum token_feature {
    TOKEN_LETTERS, /* ASCII */
    TOKEN_WORDS,   /* runs of them */
    TOKEN_DIGITS,
    TOKEN_SPACES,
    TOKEN_SPACE_RUNS,
    TOKEN_MARKS,
    TOKEN_MARK_RUNS,
    TOKEN_LATIN, /* other characters below U+0800 */
    TOKEN_CJK,
    TOKEN_OTHER,
    TOKEN_MESSAGES, /* turns: what a chat template adds */
    TOKEN_EXACT, /* tokens that are known: token ids, the fixed cost of images; never calibrated */
    TOKEN_FEATURES,
};
_Static_assert((int)TOKEN_FEATURES == (int)FLEET_FEATURES,
               "the segment keeps sums for each feature");

enum { TOKENS_PER_IMAGE = 576 };

extern const double tokens_prior[FLEET_FEATURES];

/* At least 1; at most a factor of 4 away from what the prior says. */
double tokens_estimate(const double *weights, const double *features);

/* Adds a sample to the normal equations, all else times `keep`. Prompts with exact parts say
 * nothing about text and are left out. */
void tokens_learn(struct group_cell *g, const double *features, double tokens, double keep);

/* Weights from the sums of all processes; what they say too little about stays near the prior.
 * Leaves weights alone if there is no solution. */
void tokens_solve(const struct group_cell *sums, double *weights);

#endif
