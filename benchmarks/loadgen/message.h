/* Finds the body of one HTTP/1.1 message that arrives in pieces (Content-Length or chunked).
 * It trusts its two peers, a gateway under test and this rig; it is no parser for the open network.
 */
#ifndef LOADGEN_MESSAGE_H
#define LOADGEN_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#define MESSAGE_HEAD_BYTES 8192

enum message_state {
    MESSAGE_HEAD,
    MESSAGE_BODY,
    MESSAGE_CHUNK_SIZE,
    MESSAGE_CHUNK_DATA,
    MESSAGE_CHUNK_END,
    MESSAGE_TRAILER,
    MESSAGE_DONE,
    MESSAGE_BROKEN
};

/* Gets each piece of the body, in order; offset is the piece's place in the body. */
struct message_sink {
    void (*take)(void *context, const char *piece, size_t length, uint64_t offset);
    void *context;
};

struct message {
    enum message_state state;
    uint64_t left_bytes; /* of the body or of the chunk at hand */
    uint64_t body_bytes; /* seen so far */
    size_t head_bytes;
    int line_bytes;
    int chunked;
    char head[MESSAGE_HEAD_BYTES + 1]; /* start line and headers, terminated once complete */
};

void message_reset(struct message *message);

/* Returns the bytes used: all of them unless the message ended (DONE) or made no sense (BROKEN). */
size_t message_feed(struct message *message, const char *data, size_t length,
                    struct message_sink sink);

/* The number in "HTTP/1.1 200 …", 0 for anything else. */
int message_status(const struct message *message);

#endif
