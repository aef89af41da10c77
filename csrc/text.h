/* Counts text by script class: the features from which a linear model estimates tokens.
 * Exact over the whole text and independent of how the text is cut into calls. */
#ifndef HEADRACE_TEXT_H
#define HEADRACE_TEXT_H

#include "lanes.h"

/* Characters, and runs of characters of one class where a tokenizer merges a run. Code points below
 * U+0800 beyond ASCII are latin (also Greek, Cyrillic, Hebrew, Arabic); cjk is Han, kana, hangul
 * and their full-width forms. */
struct text_counts {
    uint32_t letters, words;
    uint32_t digits;
    uint32_t spaces, space_runs;
    uint32_t marks, mark_runs;
    uint32_t latin, cjk, other;
};

struct text_lanes {
    lanes letters, words, digits, spaces, space_runs, marks, mark_runs;
};

/* A counter at work: the byte-wide sums hold at most 255 steps before they are added to the counts.
 */
struct text {
    struct text_lanes sums;
    unsigned steps;
    signed char last;
    struct text_counts counts;
};

void text_init(struct text *t);

/* The next byte starts a new text: its first character starts a run. */
void text_begin(struct text *t);

/* What a backslash and this letter stand for in a JSON string; 0: not one character so escaped. */
extern const unsigned char text_escapes[256];

/* Counts ASCII from p on, one-letter escapes included (*escaped is set then), up to anything else:
 * a quote, another escape, a control, a non-ASCII byte, or end. Returns where it stopped. */
const unsigned char *text_plain(struct text *t, const unsigned char *p, const unsigned char *end,
                                int *escaped);

/* Counts one decoded character that text_plain does not take. */
void text_char(struct text *t, uint32_t code_point);

/* Completes t->counts; counting may go on. */
void text_flush(struct text *t);

#endif
