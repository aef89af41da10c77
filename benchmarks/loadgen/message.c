#define _GNU_SOURCE
#include "message.h"

#include <stdlib.h>
#include <string.h>

void message_reset(struct message *message)
{
    message->state = MESSAGE_HEAD;
    message->left_bytes = message->body_bytes = 0;
    message->head_bytes = 0;
    message->line_bytes = 0;
    message->chunked = 0;
}

int message_status(const struct message *message)
{
    return strncmp(message->head, "HTTP/1.1 ", 9) == 0 ? atoi(message->head + 9) : 0;
}

static void message_read_framing(struct message *message)
{
    const char *length = strcasestr(message->head, "\r\ncontent-length:");
    const char *coding = strcasestr(message->head, "\r\ntransfer-encoding:");
    message->chunked = coding != NULL;
    message->left_bytes = length ? strtoull(length + 17, NULL, 10) : 0;
    if (message->chunked)
        message->state = MESSAGE_CHUNK_SIZE;
    else
        message->state = message->left_bytes ? MESSAGE_BODY : MESSAGE_DONE;
}

/* Copies head bytes until the empty line; what follows it is left unused. */
static size_t message_feed_head(struct message *message, const char *data, size_t length)
{
    size_t before = message->head_bytes, room = MESSAGE_HEAD_BYTES - before;
    size_t copied = length < room ? length : room;
    memcpy(message->head + before, data, copied);
    size_t search_from = before > 3 ? before - 3 : 0;
    char *end = memmem(message->head + search_from, before + copied - search_from, "\r\n\r\n", 4);
    if (end == NULL) {
        message->head_bytes += copied;
        if (message->head_bytes == MESSAGE_HEAD_BYTES)
            message->state = MESSAGE_BROKEN;
        return copied;
    }
    message->head_bytes = (size_t)(end - message->head) + 4;
    message->head[message->head_bytes] = 0;
    message_read_framing(message);
    return message->head_bytes - before;
}

static size_t message_feed_body(struct message *message, const char *data, size_t length,
                                struct message_sink sink, enum message_state next)
{
    size_t piece = length < message->left_bytes ? length : (size_t)message->left_bytes;
    sink.take(sink.context, data, piece, message->body_bytes);
    message->body_bytes += piece;
    message->left_bytes -= piece;
    if (message->left_bytes == 0)
        message->state = next;
    return piece;
}

static int message_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of "1a2b\r\n"; chunk extensions make the message BROKEN. */
static void message_feed_size(struct message *message, char c)
{
    int digit = message_hex_digit(c);
    if (digit >= 0) {
        message->left_bytes = message->left_bytes * 16 + (uint64_t)digit;
        message->line_bytes++;
    } else if (c == '\n' && message->line_bytes > 0) {
        message->line_bytes = 0;
        message->state = message->left_bytes ? MESSAGE_CHUNK_DATA : MESSAGE_TRAILER;
    } else if (c != '\r') {
        message->state = MESSAGE_BROKEN;
    }
}

static void message_feed_line_end(struct message *message, char c)
{
    if (c == '\n')
        message->state = MESSAGE_CHUNK_SIZE;
    else if (c != '\r')
        message->state = MESSAGE_BROKEN;
}

static void message_feed_trailer(struct message *message, char c)
{
    if (c == '\n') {
        if (message->line_bytes == 0)
            message->state = MESSAGE_DONE;
        message->line_bytes = 0;
    } else if (c != '\r') {
        message->line_bytes++;
    }
}

size_t message_feed(struct message *message, const char *data, size_t length,
                    struct message_sink sink)
{
    size_t used = 0;
    while (used < length && message->state < MESSAGE_DONE) {
        const char *at = data + used;
        switch (message->state) {
        case MESSAGE_HEAD: used += message_feed_head(message, at, length - used); break;
        case MESSAGE_BODY:
            used += message_feed_body(message, at, length - used, sink, MESSAGE_DONE);
            break;
        case MESSAGE_CHUNK_DATA:
            used += message_feed_body(message, at, length - used, sink, MESSAGE_CHUNK_END);
            break;
        case MESSAGE_CHUNK_SIZE:
            message_feed_size(message, *at);
            used++;
            break;
        case MESSAGE_CHUNK_END:
            message_feed_line_end(message, *at);
            used++;
            break;
        default: message_feed_trailer(message, *at); used++;
        }
    }
    return used;
}
