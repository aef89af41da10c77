/* Where a message body stands in its framing (RFC 9112 6 and 7.1): bytes pass unchanged, this only
 * counts along. */
#ifndef HEADRACE_FRAMING_H
#define HEADRACE_FRAMING_H

#include <stddef.h>
#include <stdint.h>

enum framing_kind {
    FRAMING_NONE,   /* no body at all */
    FRAMING_LENGTH, /* content-length */
    FRAMING_CHUNKED,
    FRAMING_CLOSE, /* until the connection ends */
};

enum framing_state {
    FRAMING_SIZE_FIRST, /* first digit of a chunk size */
    FRAMING_SIZE,
    FRAMING_EXTENSION,
    FRAMING_SIZE_LF,
    FRAMING_DATA,
    FRAMING_DATA_CR,
    FRAMING_DATA_LF,
    FRAMING_TRAILER_FIRST, /* first byte of a trailer line, or of the last CR LF */
    FRAMING_TRAILER,
    FRAMING_TRAILER_LF,
    FRAMING_LAST_LF,
};

enum { FRAMING_SIZE_DIGITS = 15, FRAMING_EXTRA_BYTES = 16384 };

/* left: bytes of the body (length) or of the open chunk that are still to come. extra: digits of
 * the size, then bytes of extensions and trailers so far, which are bounded. */
struct framing {
    uint64_t left;
    uint32_t extra;
    unsigned char kind, state, digits;
    unsigned char done; /* the message is complete */
    unsigned char
        bad; /* not the framing it claims to be: nothing behind this point means anything */
};

void framing_start(struct framing *f, enum framing_kind kind, uint64_t length);

/* Takes bytes from the start of data up to the end of at most one run of body bytes, which is left
 * in *payload and *len (len 0: none). Returns the bytes taken; call again until all are taken, or
 * done, or bad. */
size_t framing_next(struct framing *f, const char *data, size_t size, const char **payload,
                    size_t *len);

/* What brings a chunked body that was cut here to a chunk border: *before, then *newlines line
 * feeds as body bytes, then *after. 0, or -1 where no further chunk can follow. */
int framing_close(const struct framing *f, const char **before, uint64_t *newlines,
                  const char **after);

#endif
