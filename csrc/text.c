#include "text.h"

/* Class codes; letter is the all-ones lane so that a mask is already its code, and marks (the rest)
 * cost nothing. */
enum { LETTER = -1, MARK = 0, DIGIT = 2, SPACE = 4, WIDE = 8, START = 16 };

#define MAX_STEPS 255

static const lanes LANE_INDEX = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

void text_init(struct text *t)
{
    memset(t, 0, sizeof *t);
    t->last = START;
}

void text_begin(struct text *t) { t->last = START; }

static uint32_t sum(lanes v)
{
    unsigned char bytes[LANES];
    uint32_t total = 0;
    memcpy(bytes, &v, LANES);
    for (int i = 0; i < LANES; i++)
        total += bytes[i];
    return total;
}

void text_flush(struct text *t)
{
    struct text_counts *c = &t->counts;
    c->letters += sum(t->sums.letters);
    c->words += sum(t->sums.words);
    c->digits += sum(t->sums.digits);
    c->spaces += sum(t->sums.spaces);
    c->space_runs += sum(t->sums.space_runs);
    c->marks += sum(t->sums.marks);
    c->mark_runs += sum(t->sums.mark_runs);
    memset(&t->sums, 0, sizeof t->sums);
    t->steps = 0;
}

static signed char class_of(uint32_t c) /* of ASCII */
{
    if ((c | 0x20) - 'a' < 26)
        return LETTER;
    if (c - '0' < 10)
        return DIGIT;
    return c == ' ' || c - '\t' < 5 ? SPACE : MARK;
}

const unsigned char text_escapes[256] = {
    ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
    ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
};

static inline void count_ascii(struct text_counts *c, unsigned char byte, signed char last)
{
    signed char kind = class_of(byte);
    uint32_t starts = kind != last;
    switch (kind) {
    case LETTER:
        c->letters++;
        c->words += starts;
        break;
    case DIGIT: c->digits++; break;
    case SPACE:
        c->spaces++;
        c->space_runs += starts;
        break;
    default: c->marks++; c->mark_runs += starts;
    }
}

/* Counts the first n lanes of v, all printable ASCII, and returns the classes of all 16. */
static inline lanes count(struct text_lanes *sums, lanes v, int n, signed char last)
{
    lanes keep = LANE_INDEX < (signed char)n;
    lanes lower = v | 0x20;
    lanes letter = (lower > 'a' - 1) & (lower < 'z' + 1);
    lanes digit = (v > '0' - 1) & (v < '9' + 1);
    lanes space = v == ' ';
    lanes mark = ~(letter | digit | space) & keep;
    lanes classes = letter | (digit & DIGIT) | (space & SPACE);
    lanes start = classes != lanes_shift_in(classes, last);
    letter &= keep;
    space &= keep;
    sums->letters -= letter;
    sums->words -= letter & start;
    sums->digits -= digit & keep;
    sums->spaces -= space;
    sums->space_runs -= space & start;
    sums->marks -= mark;
    sums->mark_runs -= mark & start;
    return classes;
}

const unsigned char *text_plain(struct text *t, const unsigned char *p, const unsigned char *end,
                                int *escaped)
{
    struct text_lanes sums = t->sums;
    unsigned steps = t->steps;
    signed char last = t->last;
    for (;;) {
        lanes v = lanes_load_within(p, end);
        int n = lanes_first(lanes_special(v));
        if (++steps == MAX_STEPS) {
            t->sums = sums;
            text_flush(t);
            memset(&sums, 0, sizeof sums);
            steps = 1;
        }
        if (n == LANES) {
            last = count(&sums, v, LANES, last)[LANES - 1];
            p += LANES;
            continue;
        }
        count(&sums, v, n, last);
        p += n;
        last = n ? class_of(p[-1]) : last;
        if (end - p < 2 || *p != '\\' || !text_escapes[p[1]])
            break;
        *escaped = 1;
        count_ascii(&t->counts, text_escapes[p[1]], last);
        last = class_of(text_escapes[p[1]]);
        p += 2;
    }
    t->sums = sums;
    t->steps = steps;
    t->last = last;
    return p;
}

static int is_cjk(uint32_t c)
{
    return (c >= 0x2E80 && c < 0xD800) || (c >= 0x1100 && c < 0x1200) ||
           (c >= 0xF900 && c < 0xFB00) || (c >= 0xFE30 && c < 0xFE50) ||
           (c >= 0xFF00 && c < 0xFFF0) || (c >= 0x20000 && c < 0x40000);
}

void text_char(struct text *t, uint32_t code_point)
{
    signed char kind = WIDE;
    if (code_point < 0x80) {
        kind = class_of(code_point);
        count_ascii(&t->counts, (unsigned char)code_point, t->last);
    } else if (code_point < 0x800) {
        t->counts.latin++;
    } else if (is_cjk(code_point)) {
        t->counts.cjk++;
    } else {
        t->counts.other++;
    }
    t->last = kind;
}
