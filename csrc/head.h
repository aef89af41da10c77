/* The lines of an HTTP/1 head: finds them again in the bytes that an HTTP parser has accepted, says
 * what they mean to a gateway, and copies those that may cross. Stricter than parsers are: what two
 * hops might read differently is refused.
 *
 * A head ends with its empty line; `size` counts that line too. Spans are offsets into the head. */
#ifndef HEADRACE_HEAD_H
#define HEADRACE_HEAD_H

#include <stddef.h>
#include <stdint.h>

/* Headers that a gateway looks at or must not pass on. HEADER_OTHER is everything else. */
enum header {
    HEADER_OTHER,
    HEADER_ACCESS_CONTROL_REQUEST_HEADERS,
    HEADER_ACCESS_CONTROL_REQUEST_METHOD,
    HEADER_AUTHORIZATION,
    HEADER_CONNECTION,
    HEADER_CONTENT_LENGTH,
    HEADER_CONTENT_TYPE,
    HEADER_CONTENT_ENCODING,
    HEADER_DEBUG,
    HEADER_DP_RANK,
    HEADER_EXPECT,
    HEADER_FORWARDED_FOR,
    HEADER_FORWARDED_PROTO,
    HEADER_HOST,
    HEADER_KEEP_ALIVE,
    HEADER_ORIGIN,
    HEADER_PRIORITY,
    HEADER_PROXY_AUTHENTICATE,
    HEADER_PROXY_AUTHORIZATION,
    HEADER_PROXY_CONNECTION,
    HEADER_REPLICA,
    HEADER_REQUEST_ID,
    HEADER_SMG_PRIORITY,
    HEADER_TE,
    HEADER_TRACEPARENT,
    HEADER_TRACESTATE,
    HEADER_TRAILER,
    HEADER_TRANSFER_ENCODING,
    HEADER_UPGRADE,
    HEADER_X_API_KEY,
    HEADERS
};
_Static_assert(HEADERS <= 64, "a set of headers is one word");

#define HEADER_BIT(id) (1ULL << (id))
/* RFC 9110 7.6.1, and what describes a connection in practice. */
#define HEADERS_HOP_BY_HOP                                                                         \
    (HEADER_BIT(HEADER_CONNECTION) | HEADER_BIT(HEADER_KEEP_ALIVE) |                               \
     HEADER_BIT(HEADER_PROXY_AUTHENTICATE) | HEADER_BIT(HEADER_PROXY_AUTHORIZATION) |              \
     HEADER_BIT(HEADER_PROXY_CONNECTION) | HEADER_BIT(HEADER_TE) |                                 \
     HEADER_BIT(HEADER_TRANSFER_ENCODING) | HEADER_BIT(HEADER_UPGRADE))

struct head_span {
    uint32_t at, len; /* len 0: absent or empty */
};

/* One header line, without its line end. The value is trimmed. */
struct head_line {
    uint32_t at, len;
    uint32_t name_len;
    struct head_span value;
    enum header id;
};

/* Names that the configuration chooses; lower case, the first is preferred. */
enum { HEAD_NAMES = 16, HEAD_NAME_BYTES = 64 };
struct head_names {
    uint32_t count;
    uint64_t lengths; /* bit n: a name of n bytes is among them */
    unsigned char len[HEAD_NAMES];
    char name[HEAD_NAMES][HEAD_NAME_BYTES];
};

enum head_flag {
    HEAD_CHUNKED = 1,
    HEAD_CLOSE = 2,       /* Connection: close */
    HEAD_KEEP_ALIVE = 4,  /* Connection: keep-alive */
    HEAD_UPGRADE = 8,     /* an Upgrade header, and the token in Connection */
    HEAD_NOMINATES = 16,  /* Connection names other headers */
    HEAD_CONTINUE = 32,   /* Expect: 100-continue */
    HEAD_DEBUG = 64,      /* x-headrace-debug: 1 */
    HEAD_EVENTS = 128,    /* Content-Type: text/event-stream */
    HEAD_JSON = 256,      /* Content-Type: application/json or …+json */
    HEAD_MULTIPART = 512, /* Content-Type: multipart/form-data */
    HEAD_ENCODED = 1024,  /* a Content-Encoding other than identity */
    HEAD_EXPECTS = 2048,  /* an expectation that is not known */
};

struct request_head {
    struct head_span method, target;
    struct head_span traceparent;
    struct head_span authorization, api_key, origin, preflight_method, preflight_headers,
        content_type, request_id, session;
    int64_t content_length; /* -1: none */
    uint64_t ids;           /* HEADER_BIT of every line */
    uint32_t flags;
    uint32_t lines;
    int32_t priority;           /* 0 system … 3 bulk; 2 is the default */
    unsigned char minor;        /* of the HTTP version */
    unsigned char keys;         /* Authorization and x-api-key lines */
    unsigned char traceparents; /* lines of it */
};

struct response_head {
    struct head_span content_type;
    int64_t content_length; /* -1: none */
    uint32_t flags;
    uint16_t status;
    unsigned char minor;
    struct head_span reason; /* "200 OK": from the status to the end of its line */
};

/* Bytes of the head that data begins with, its empty line included; 0 if that has not come yet. */
uint64_t head_end(const char *data, uint64_t size);

/* Reads the next line from *at on (0 at the start: the first line is passed over): 1, 0 at the
 * empty line, -1 malformed. */
int head_next(const char *head, uint32_t size, uint32_t *at, struct head_line *line);

/* 0, or -1 if the head must be refused. ids and sessions: configured names of request ids and
 * session keys. */
int head_read_request(const char *head, uint32_t size, const struct head_names *ids,
                      const struct head_names *sessions, struct request_head *out);
int head_read_response(const char *head, uint32_t size, struct response_head *out);

/* Copies the header lines whose ids are not in `drop` and which Connection does not name; returns
 * the bytes written, at most size. */
uint32_t head_copy(const char *head, uint32_t size, uint64_t drop, int nominates, char *out);

/* Values of all lines with this id, joined by ", "; returns the bytes written, at most size. */
uint32_t head_join(const char *head, uint32_t size, enum header id, char *out);

/* Adds a name to a list; what does not fit is left out. 0 or -1. */
int head_add_name(struct head_names *names, const char *name, uint32_t len);

#endif
