#include "framing.h"

void framing_start(struct framing *f, enum framing_kind kind, uint64_t length)
{
    f->left = kind == FRAMING_LENGTH ? length : 0;
    f->extra = 0;
    f->kind = (unsigned char)kind;
    f->state = FRAMING_SIZE_FIRST;
    f->digits = 0;
    f->done = kind == FRAMING_NONE || (kind == FRAMING_LENGTH && length == 0);
    f->bad = 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static void fail(struct framing *f) { f->bad = 1; }

/* The size line has ended. */
static void enter_chunk(struct framing *f)
{
    f->state = f->left ? FRAMING_DATA : FRAMING_TRAILER_FIRST;
}

static void read_size(struct framing *f, char c)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (f->digits++ == FRAMING_SIZE_DIGITS)
            fail(f);
        f->left = f->left << 4 | (unsigned)digit;
        f->state = FRAMING_SIZE;
    } else if (f->state == FRAMING_SIZE_FIRST) {
        fail(f);
    } else if (c == '\r') {
        f->state = FRAMING_SIZE_LF;
    } else if (c == ';' || c == ' ' || c == '\t') {
        f->state = FRAMING_EXTENSION;
    } else {
        fail(f);
    }
}

/* Extensions and trailers: their content means nothing here, but they end and are bounded. */
static void read_extra(struct framing *f, char c, enum framing_state then)
{
    if (c == '\r')
        f->state = (unsigned char)then;
    else if (c == '\n' || c == 0 || ++f->extra > FRAMING_EXTRA_BYTES)
        fail(f);
}

static void expect(struct framing *f, char c, char want, enum framing_state then)
{
    if (c == want)
        f->state = (unsigned char)then;
    else
        fail(f);
}

/* One byte of chunked framing outside the data. */
static void step(struct framing *f, char c)
{
    switch ((enum framing_state)f->state) {
    case FRAMING_SIZE_FIRST:
    case FRAMING_SIZE: read_size(f, c); break;
    case FRAMING_EXTENSION: read_extra(f, c, FRAMING_SIZE_LF); break;
    case FRAMING_SIZE_LF:
        if (c == '\n')
            enter_chunk(f);
        else
            fail(f);
        break;
    case FRAMING_DATA: break;
    case FRAMING_DATA_CR: expect(f, c, '\r', FRAMING_DATA_LF); break;
    case FRAMING_DATA_LF:
        expect(f, c, '\n', FRAMING_SIZE_FIRST);
        f->digits = 0;
        break;
    case FRAMING_TRAILER_FIRST:
        f->state = FRAMING_TRAILER;
        if (c == '\r')
            f->state = FRAMING_LAST_LF;
        else
            read_extra(f, c, FRAMING_TRAILER_LF);
        break;
    case FRAMING_TRAILER: read_extra(f, c, FRAMING_TRAILER_LF); break;
    case FRAMING_TRAILER_LF: expect(f, c, '\n', FRAMING_TRAILER_FIRST); break;
    case FRAMING_LAST_LF:
        f->done = c == '\n';
        f->bad = !f->done;
        break;
    }
}

size_t framing_next(struct framing *f, const char *data, size_t size, const char **payload,
                    size_t *len)
{
    size_t at = 0, run;
    *payload = data;
    *len = 0;
    if (f->done || f->bad)
        return 0;
    if (f->kind == FRAMING_CLOSE) {
        *len = size;
        return size;
    }
    while (f->kind == FRAMING_CHUNKED && f->state != FRAMING_DATA && at < size) {
        step(f, data[at]);
        if (f->bad)
            return at;
        at++;
        if (f->done)
            return at;
    }
    run = size - at < f->left ? size - at : (size_t)f->left;
    if (run == 0)
        return at;
    if (f->kind == FRAMING_CHUNKED && f->state != FRAMING_DATA)
        return at;
    *payload = data + at;
    *len = run;
    f->left -= run;
    if (f->left == 0) {
        f->state = FRAMING_DATA_CR;
        f->done = f->kind == FRAMING_LENGTH;
    }
    return at + run;
}

int framing_close(const struct framing *f, const char **before, uint64_t *newlines,
                  const char **after)
{
    *before = *after = "";
    *newlines = 0;
    if (f->kind != FRAMING_CHUNKED || f->done)
        return -1;
    switch ((enum framing_state)f->state) {
    case FRAMING_SIZE_FIRST: return 0;
    case FRAMING_SIZE:
    case FRAMING_EXTENSION:
    case FRAMING_SIZE_LF:
        if (f->left == 0)
            return -1; /* the last chunk: a trailer would have to follow */
        *before = f->state == FRAMING_SIZE_LF ? "\n" : "\r\n";
        *newlines = f->left;
        *after = "\r\n";
        return 0;
    case FRAMING_DATA:
        *newlines = f->left;
        *after = "\r\n";
        return 0;
    case FRAMING_DATA_CR: *after = "\r\n"; return 0;
    case FRAMING_DATA_LF: *after = "\n"; return 0;
    default: return -1;
    }
}
