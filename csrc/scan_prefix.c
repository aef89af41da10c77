#include "blocks.h"
#include "hash.h"
#include "marks.h"
#include "prompt.h"
#include "scan.h"

/* In place of a token id: starts the next sequence of a batch and keeps ids at four bytes. */
#define ID_SEQUENCE 0xFFFFFFFFU

struct walk {
    struct json j;
    struct blocks *out;
};

/* Any value as its tokens: strings decoded and between marks, spaces left out. */
static void add_json(struct walk *w)
{
    const unsigned char *stop;
    struct json value = w->j;
    json_skip_valid(&value);
    stop = value.p;
    blocks_add_byte(w->out, MARK_JSON);
    while (w->j.p < stop && !blocks_are_full(w->out)) {
        unsigned char c = *w->j.p;
        if (c == '"') {
            blocks_add_byte(w->out, MARK_STRING);
            blocks_add_string(w->out, &w->j);
            blocks_add_byte(w->out, MARK_STRING);
            continue;
        }
        if (c > ' ')
            blocks_add_byte(w->out, c);
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
        json_skip_valid(&at);
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
        blocks_add_string(&media, &inner.j);
    else
        add_json(&inner);
    blocks_add_byte(w->out, MARK_MEDIA);
    blocks_add_number(w->out, blocks_digest(&media), 8);
    json_skip_valid(&w->j);
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
        json_skip_valid(&w->j);
    }
    if (is_turn) {
        blocks_add_byte(w->out, MARK_TURN);
        if (present & 1) /* the role, first of the keys */
            add_member(w, PROMPT_ROLE, at[0], depth + 1);
        blocks_add_byte(w->out, MARK_CONTENT);
        present &= ~1U;
    }
    for (; present && !blocks_are_full(w->out); present &= present - 1) {
        int i = __builtin_ctz(present);
        add_member(w, prompt_key_uses[i], at[i], depth + 1);
    }
}

static void add_value(struct walk *w, unsigned depth)
{
    enum json_kind kind = json_peek(&w->j);
    if (blocks_are_full(w->out))
        return;
    if (kind == JSON_STRING) {
        blocks_add_string(w->out, &w->j);
    } else if (depth == PROMPT_MAX_DEPTH || kind < JSON_STRING) {
        json_skip_valid(&w->j);
    } else if (kind == JSON_OBJECT) {
        add_object(w, 0, depth);
    } else {
        for (int more = json_enter(&w->j); more > 0 && !blocks_are_full(w->out);
             more = json_next(&w->j, ']'))
            add_value(w, depth + 1);
    }
}

static void add_number(struct walk *w)
{
    uint64_t id = 0;
    for (const unsigned char *p = w->j.p; p < w->j.end && *p >= '0' && *p <= '9'; p++)
        id = id * 10 + (*p - '0');
    blocks_add_number(w->out, id, 4);
    json_skip_valid(&w->j);
}

/* Sequences are marked off from each other, not the first from nothing: a batch of one hashes like
 * its only member. */
static void add_batch(struct walk *w, unsigned depth)
{
    int first = 1;
    for (int more = json_enter(&w->j); more > 0 && !blocks_are_full(w->out);
         more = json_next(&w->j, ']')) {
        enum json_kind kind = json_peek(&w->j);
        if (kind == JSON_NUMBER) {
            add_number(w);
        } else if (kind == JSON_OBJECT) {
            add_object(w, 1, 1);
        } else if (kind == JSON_ARRAY && depth == 0) {
            if (!first)
                blocks_add_number(w->out, ID_SEQUENCE, 4);
            add_batch(w, 1);
        } else {
            if (!first)
                blocks_add_byte(w->out, MARK_TURN);
            add_value(w, 1);
        }
        first = 0;
    }
}

static void add_field(struct walk *w, int id)
{
    enum prompt_use use = prompt_field_use(id);
    blocks_add_byte(w->out, MARK_FIELD);
    blocks_add_byte(w->out, (unsigned char)id);
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
    for (int id = SCAN_INSTRUCTIONS; id < SCAN_FIELDS && !blocks_are_full(&out); id++) {
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
