#include "blocks.h"

#include "hash.h"

static void add_block(struct blocks *b, const unsigned char *bytes)
{
    b->chain = hash_bytes(bytes, BLOCK_BYTES, b->chain);
    if (b->keys)
        b->keys[b->count] = b->chain;
    b->count++;
}

/* Closes the block if it is complete; what stands in the slack starts the next one. */
static inline void close_block(struct blocks *b)
{
    if (b->used < BLOCK_BYTES || blocks_are_full(b))
        return;
    add_block(b, b->bytes);
    b->used -= BLOCK_BYTES;
    memcpy(b->bytes, b->bytes + BLOCK_BYTES, LANES);
}

/* A long run: whole blocks are hashed where they stand. */
static void add_run(struct blocks *b, const unsigned char *p, size_t len)
{
    size_t part = BLOCK_BYTES - b->used;
    if (len >= part) {
        memcpy(b->bytes + b->used, p, part);
        b->used = 0;
        add_block(b, b->bytes);
        p += part;
        len -= part;
        for (; len >= BLOCK_BYTES && !blocks_are_full(b); len -= BLOCK_BYTES, p += BLOCK_BYTES)
            add_block(b, p);
    }
    if (blocks_are_full(b))
        return;
    memcpy(b->bytes + b->used, p, len);
    b->used += len;
}

void blocks_add_bytes(struct blocks *b, const unsigned char *p, size_t len)
{
    if (!blocks_are_full(b))
        add_run(b, p, len);
}

void blocks_add_byte(struct blocks *b, unsigned char byte) { blocks_add_number(b, byte, 1); }

void blocks_add_number(struct blocks *b, uint64_t value, int len)
{
    if (blocks_are_full(b))
        return;
    for (int i = 0; i < len; i++)
        b->bytes[b->used++] = (unsigned char)(value >> 8 * i);
    close_block(b);
}

/* Short runs between escapes are stored as whole lanes, of which the next ones overwrite what does
 * not belong to them. */
void blocks_add_string(struct blocks *b, struct json *j)
{
    const unsigned char *p = j->p + 1, *end = j->end;
    uint32_t c;
    while (!blocks_are_full(b)) {
        lanes v = lanes_load_within(p, end);
        int n = lanes_first((v == '"') | (v == '\\'));
        if (n == LANES) {
            const unsigned char *stop = json_end_of_run(p + LANES, end);
            add_run(b, p, (size_t)(stop - p));
            p = stop;
        } else {
            memcpy(b->bytes + b->used, &v, LANES);
            b->used += (size_t)n;
            close_block(b);
            p += n;
        }
        if (blocks_are_full(b) || *p == '"')
            break;
        if (text_escapes[p[1]]) {
            b->bytes[b->used++] = text_escapes[p[1]];
            p += 2;
        } else {
            p = json_unescape(p, end, &c);
            b->used += (size_t)json_encode(c, b->bytes + b->used);
        }
        close_block(b);
    }
    j->p = p < end ? p + 1 : end;
}

uint64_t blocks_digest(const struct blocks *b) { return hash_bytes(b->bytes, b->used, b->chain); }
