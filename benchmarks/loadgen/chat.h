/* The conversation both ends of the rig know by heart, so that each can check every byte the other
 * sent. Requests differ in their first 16 prompt characters only, which makes every prefix block
 * distinct. */
#ifndef LOADGEN_CHAT_H
#define LOADGEN_CHAT_H

#include <stddef.h>
#include <stdint.h>

#define CHAT_MODEL "fake"
#define CHAT_SERIAL_BYTES 16

struct chat_request {
    char *body;
    size_t length;
    size_t serial_at; /* offset of the 16 hex digits that make a request unique */
};

/* A valid chat completion body of exactly `length` bytes (at least 256). */
struct chat_request chat_request_new(size_t length, int stream);
void chat_request_number(struct chat_request *request, uint64_t serial);

/* 1 if the body is the request of that length and mode, whatever its serial. */
int chat_request_matches(const struct chat_request *request, const char *body, size_t length);

/* An answer as its body and as its bytes on the wire. Piece i of the wire ends at ends[i]: piece 0
 * is the head, for a stream the others are one event each; a plain answer is one piece. */
struct chat_answer {
    char *body;
    size_t body_length;
    char *wire;
    size_t *ends;
    size_t pieces;
};

struct chat_answer chat_answer_json(void); /* about 1 KB with usage */
struct chat_answer
chat_answer_stream(size_t events); /* about 250 bytes an event; the last two: usage, [DONE] */

#endif
