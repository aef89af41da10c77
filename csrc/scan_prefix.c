#include "hash.h"
#include "prompt.h"
#include "scan.h"

/* Marks in the hashed bytes: none can occur in the UTF-8 of text (nor in a surrogate coded like
 * it), so that borders are unambiguous. No container gets an end mark where something may be
 * appended: growth must keep all earlier bytes. */
enum {
    MARK_FIELD = 0xF9,
    MARK_STRING = 0xFB,
    MARK_MEDIA = 0xFC,
    MARK_JSON = 0xFD,
    MARK_CONTENT = 0xFE,
    MARK_TURN = 0xFF,
};

/* In place of a token id: starts the next sequence of a batch and keeps ids at four bytes. */
#define ID_SEQUENCE 0xFFFFFFFFU

/* Collects bytes into blocks; the slack takes whole lanes. keys NULL: only the chain is wanted. At
 * count == max nothing more will be looked at. */
struct blocks {
    unsigned char bytes[SCAN_BLOCK_BYTES + LANES];
    size_t used;
    uint64_t chain;
    uint64_t *keys;
    size_t count, max;
};

struct walk {
    struct json j;
    struct blocks *out;
};

static int is_full(const struct blocks *b) { return b->count == b->max; }

static void add_block(struct blocks *b, const unsigned char *bytes)
{
    b->chain = hash_bytes(bytes, SCAN_BLOCK_BYTES, b->chain);
    if (b->keys)
        b->keys[b->count] = b->chain;
    b->count++;
}

/* Closes the block if it is complete; what stands in the slack starts the next one. */
static inline void close_block(struct blocks *b)
{
    if (b->used < SCAN_BLOCK_BYTES || is_full(b))
        return;
    add_block(b, b->bytes);
    b->used -= SCAN_BLOCK_BYTES;
    memcpy(b->bytes, b->bytes + SCAN_BLOCK_BYTES, LANES);
}

/* A long run: whole blocks are hashed where they stand. */
static void add_run(struct blocks *b, const unsigned char *p, size_t len)
{
    size_t part = SCAN_BLOCK_BYTES - b->used;
    if (len >= part) {
        memcpy(b->bytes + b->used, p, part);
        b->used = 0;
        add_block(b, b->bytes);
        for (p += part, len -= part; len >= SCAN_BLOCK_BYTES && !is_full(b);
             len -= SCAN_BLOCK_BYTES) {
            add_block(b, p);
            p += SCAN_BLOCK_BYTES;
        }
    }
    if (is_full(b))
        return;
    memcpy(b->bytes + b->used, p, len);
    b->used += len;
}

/* At most LANES bytes. A full collector has used < SCAN_BLOCK_BYTES + LANES for good. */
static void add(struct blocks *b, const void *bytes, size_t len)
{
    if (is_full(b))
        return;
    memcpy(b->bytes + b->used, bytes, len);
    b->used += len;
    close_block(b);
}

static void add_byte(struct blocks *b, unsigned char byte) { add(b, &byte, 1); }

static void add_little_endian(struct blocks *b, uint64_t value, int len)
{
    unsigned char bytes[8];
    for (int i = 0; i < len; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    add(b, bytes, (size_t)len);
}

static inline lanes load(const unsigned char *p, const unsigned char *end)
{
    size_t left = (size_t)(end - p);
    return left >= LANES ? lanes_load(p) : lanes_load_tail(p, left);
}

static const unsigned char *end_of_run(const unsigned char *p, const unsigned char *end)
{
    for (; p < end; p += LANES) {
        lanes v = load(p, end);
        int n = lanes_first((v == '"') | (v == '\\'));
        if (n < LANES)
            return p + n;
    }
    return end;
}

/* The decoded text of the string at p; the body is known to be valid. */
static void add_string(struct walk *w, struct blocks *b)
{
    const unsigned char *p = w->j.p + 1, *end = w->j.end;
    uint32_t c;
    while (!is_full(b)) {
        lanes v = load(p, end);
        int n = lanes_first((v == '"') | (v == '\\'));
        if (n == LANES) {
            const unsigned char *stop = end_of_run(p + LANES, end);
            add_run(b, p, (size_t)(stop - p));
            p = stop;
        } else {
            memcpy(b->bytes + b->used, &v, LANES);
            b->used += (size_t)n;
            close_block(b);
            p += n;
        }
        if (is_full(b) || *p == '"')
            break;
        p = json_unescape(p, end, &c);
        b->used += (size_t)json_encode(c, b->bytes + b->used);
        close_block(b);
    }
    w->j.p = p < end ? p + 1 : end;
}

/* Where a value that is known to be valid ends. */
static const unsigned char *end_of_string(const unsigned char *p, const unsigned char *end)
{
    for (p++; p < end; p += 2) {
        p = end_of_run(p, end);
        if (p < end && *p == '"')
            return p + 1;
    }
    return end;
}

static const unsigned char *end_of_container(const unsigned char *p, const unsigned char *end)
{
    size_t depth = 0;
    while (p < end) {
        lanes v = load(p, end);
        lanes folded = v | 0x20; /* '[' onto '{', ']' onto '}' */
        int n = lanes_first((v == '"') | (folded == '{') | (folded == '}'));
        if (n == LANES) {
            p += LANES;
            continue;
        }
        p += n;
        if (*p == '"')
            p = end_of_string(p, end);
        else if ((*p++ | 0x20) == '{')
            depth++;
        else if (--depth == 0)
            return p;
    }
    return end;
}

static void skip(struct json *j)
{
    switch (json_peek(j)) {
    case JSON_STRING: j->p = end_of_string(j->p, j->end); break;
    case JSON_OBJECT:
    case JSON_ARRAY: j->p = end_of_container(j->p, j->end); break;
    default:
        while (j->p < j->end && *j->p > ' ' && *j->p != ',' && *j->p != ']' && *j->p != '}')
            j->p++;
    }
}

/* Any value as its tokens: strings decoded and between marks, spaces left out. */
static void add_json(struct walk *w)
{
    const unsigned char *stop;
    struct json value = w->j;
    skip(&value);
    stop = value.p;
    add_byte(w->out, MARK_JSON);
    while (w->j.p < stop && !is_full(w->out)) {
        unsigned char c = *w->j.p;
        if (c == '"') {
            add_byte(w->out, MARK_STRING);
            add_string(w, w->out);
            add_byte(w->out, MARK_STRING);
            continue;
        }
        if (c > ' ')
            add_byte(w->out, c);
        w->j.p++;
    }
    w->j.p = stop;
}

/* Points j at the url of an object that has one. */
static void enter_url(struct json *j)
{
    static const struct json_name url = JSON_NAME("url");
    struct json at = *j, found = *j;
    if (json_peek(j) != JSON_OBJECT)
        return;
    for (int more = json_enter(&at); more > 0; more = json_next(&at, '}')) {
        struct json_string key;
        json_read_key(&at, &key);
        if (json_find_name(&key, &url, 1) == 0 && json_peek(&at) == JSON_STRING)
            found = at;
        skip(&at);
    }
    *j = found;
}

/* Media stand as the hash of their URL or data: nine bytes, whatever their size. */
static void add_media(struct walk *w)
{
    struct blocks media = {.max = SIZE_MAX};
    struct walk inner = {w->j, &media};
    enter_url(&inner.j);
    if (json_peek(&inner.j) == JSON_STRING)
        add_string(&inner, &media);
    else
        add_json(&inner);
    media.chain = hash_bytes(media.bytes, media.used, media.chain);
    add_byte(w->out, MARK_MEDIA);
    add_little_endian(w->out, media.chain, 8);
    skip(&w->j);
}

static void add_value(struct walk *w, unsigned depth);

static void add_member(struct walk *w, enum prompt_use use, const unsigned char *at, unsigned depth)
{
    struct walk member = {{at, w->j.end, w->j.depth}, w->out};
    if (json_peek(&member.j) == JSON_NULL)
        return;
    if (use == PROMPT_ROLE || use == PROMPT_TEXT)
        add_value(&member, depth);
    else if (use == PROMPT_JSON)
        add_json(&member);
    else
        add_media(&member);
}

/* Members count in the order of prompt_keys, not in the order in which they stand. */
static void add_object(struct walk *w, int is_turn, unsigned depth)
{
    const unsigned char *at[PROMPT_KEYS];
    uint32_t present = 0;
    for (int more = json_enter(&w->j); more > 0; more = json_next(&w->j, '}')) {
        struct json_string key;
        int found;
        json_read_key(&w->j, &key);
        found = json_find_name(&key, prompt_keys, PROMPT_KEYS);
        if (found >= 0) {
            at[found] = w->j.p;
            present |= 1U << found;
        }
        skip(&w->j);
    }
    if (is_turn) {
        add_byte(w->out, MARK_TURN);
        if (present & 1) /* the role, first of the keys */
            add_member(w, PROMPT_ROLE, at[0], depth + 1);
        add_byte(w->out, MARK_CONTENT);
        present &= ~1U;
    }
    for (; present && !is_full(w->out); present &= present - 1) {
        int i = __builtin_ctz(present);
        add_member(w, prompt_key_uses[i], at[i], depth + 1);
    }
}

static void add_value(struct walk *w, unsigned depth)
{
    enum json_kind kind = json_peek(&w->j);
    if (is_full(w->out))
        return;
    if (kind == JSON_STRING) {
        add_string(w, w->out);
    } else if (depth == PROMPT_MAX_DEPTH || kind < JSON_STRING) {
        skip(&w->j);
    } else if (kind == JSON_OBJECT) {
        add_object(w, 0, depth);
    } else {
        for (int more = json_enter(&w->j); more > 0 && !is_full(w->out);
             more = json_next(&w->j, ']'))
            add_value(w, depth + 1);
    }
}

static void add_number(struct walk *w)
{
    uint64_t id = 0;
    for (const unsigned char *p = w->j.p; p < w->j.end && *p >= '0' && *p <= '9'; p++)
        id = id * 10 + (*p - '0');
    add_little_endian(w->out, id, 4);
    skip(&w->j);
}

/* Sequences are marked off from each other, not the first from nothing: a batch of one hashes like
 * its only member. */
static void add_batch(struct walk *w, unsigned depth)
{
    int first = 1;
    for (int more = json_enter(&w->j); more > 0 && !is_full(w->out); more = json_next(&w->j, ']')) {
        enum json_kind kind = json_peek(&w->j);
        if (kind == JSON_NUMBER) {
            add_number(w);
        } else if (kind == JSON_OBJECT) {
            add_object(w, 1, 1);
        } else if (kind == JSON_ARRAY && depth == 0) {
            if (!first)
                add_little_endian(w->out, ID_SEQUENCE, 4);
            add_batch(w, 1);
        } else {
            if (!first)
                add_byte(w->out, MARK_TURN);
            add_value(w, 1);
        }
        first = 0;
    }
}

static void add_field(struct walk *w, int id)
{
    enum prompt_use use = prompt_field_use(id);
    add_byte(w->out, MARK_FIELD);
    add_byte(w->out, (unsigned char)id);
    if (use == PROMPT_JSON)
        add_json(w);
    else if (use != PROMPT_TEXT && json_peek(&w->j) == JSON_ARRAY)
        add_batch(w, 0);
    else
        add_value(w, 0);
}

size_t scan_prefix(const char *body, size_t len, const struct scan *s, uint64_t *keys,
                   size_t max_keys)
{
    const unsigned char *bytes = (const unsigned char *)body;
    struct blocks out = {.keys = keys,
                         .max = max_keys < SCAN_MAX_BLOCKS ? max_keys : SCAN_MAX_BLOCKS};
    struct walk w = {{NULL, NULL, 1}, &out};
    for (int id = SCAN_INSTRUCTIONS; id < SCAN_FIELDS && !is_full(&out); id++) {
        const struct scan_field *f = &s->field[id];
        if (f->kind < JSON_STRING || f->end > len)
            continue;
        w.j.p = bytes + f->start;
        w.j.end = bytes + f->end;
        add_field(&w, id);
    }
    return out.count;
}

uint64_t scan_root(const char *model, size_t model_len, const char *lora, size_t lora_len,
                   const char *salt, size_t salt_len)
{
    uint64_t root = hash_bytes(model, model ? model_len : 0, 1);
    if (lora)
        root = hash_mix(root, hash_bytes(lora, lora_len, 2));
    if (salt)
        root = hash_mix(root, hash_bytes(salt, salt_len, 3));
    return root;
}
