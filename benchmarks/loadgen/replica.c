/* fake_replica: an engine that costs almost nothing, so that a core is left for the load generator.
 * A plain request is answered at once. Streams advance together, one event a step, as an engine's
 * decode does.
 *
 *   fake_replica --ports 18100,18101 [--step-us 20000] [--events 100] [--any-body] [--spin]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chat.h"
#include "clock.h"
#include "message.h"
#include "metrics_page.h"
#include "sockets.h"

enum kind { LISTENER, STEP_TIMER, CONNECTION };

struct source {
    enum kind kind;
    int fd;
};

struct connection {
    struct source source; /* first, so that an epoll event leads here */
    struct message request;
    char *body;
    size_t body_room;
    const struct chat_answer *answer; /* NULL: none in progress */
    size_t next_piece;                /* of the answer, not due yet */
    size_t sent, due;                 /* bytes of the answer's wire form */
    long active_at;                   /* place in replica.active, -1: not streaming */
};

static struct {
    int epoll;
    int check_bodies;
    int spin;
    struct chat_answer plain, stream;
    struct chat_request known; /* last length and mode seen, with what it must look like */
    int known_stream;
    struct connection **active; /* streams in progress */
    long active_count, active_room;
    char read_buffer[262144];
} replica = {.check_bodies = 1};

static void stream_join(struct connection *c)
{
    if (replica.active_count == replica.active_room) {
        replica.active_room = replica.active_room ? 2 * replica.active_room : 1024;
        replica.active =
            realloc(replica.active, (size_t)replica.active_room * sizeof *replica.active);
    }
    c->active_at = replica.active_count;
    replica.active[replica.active_count++] = c;
}

static void stream_leave(struct connection *c)
{
    if (c->active_at < 0)
        return;
    struct connection *last = replica.active[--replica.active_count];
    replica.active[c->active_at] = last;
    last->active_at = c->active_at;
    c->active_at = -1;
}

static void connection_close(struct connection *c)
{
    stream_leave(c);
    close(c->source.fd);
    free(c->body);
    free(c);
}

/* Sends what is due. Returns -1 if the connection is gone (and freed). */
static int connection_flush(struct connection *c)
{
    while (c->sent < c->due) {
        ssize_t n = send(c->source.fd, c->answer->wire + c->sent, c->due - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            sockets_rewatch(replica.epoll, c->source.fd, EPOLLIN | EPOLLOUT, c);
            return 0;
        }
        if (n < 0) {
            connection_close(c);
            return -1;
        }
        c->sent += (size_t)n;
    }
    if (c->next_piece == c->answer->pieces) {
        c->answer = NULL;
        stream_leave(c);
    }
    return 0;
}

static int connection_advance(struct connection *c)
{
    if (c->next_piece < c->answer->pieces)
        c->due = c->answer->ends[c->next_piece++];
    return connection_flush(c);
}

static void body_take(void *context, const char *piece, size_t length, uint64_t offset)
{
    struct connection *c = context;
    if (offset + length > c->body_room) {
        c->body_room = 2 * (offset + length);
        c->body = realloc(c->body, c->body_room);
    }
    memcpy(c->body + offset, piece, length);
}

/* A short answer outside of the chat dialect: health, models, metrics, refusals. Small enough for
 * one send. */
static int connection_say(struct connection *c, const char *status, const char *type,
                          const char *body, size_t length)
{
    static char wire[METRICS_PAGE_ROOM + 512];
    int n = sprintf(wire, "HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n", status,
                    type, length);
    memcpy(wire + n, body, length);
    if (send(c->source.fd, wire, (size_t)n + length, MSG_NOSIGNAL) >= 0)
        return 0;
    connection_close(c);
    return -1;
}

static int connection_say_page(struct connection *c)
{
    static const char models[] =
        "{\"object\":\"list\",\"data\":[{\"id\":\"" CHAT_MODEL
        "\",\"object\":\"model\",\"owned_by\":\"vllm\",\"max_model_len\":131072}]}";
    static char page[METRICS_PAGE_ROOM];
    const char *head = c->request.head;
    if (strncmp(head, "GET /v1/models ", 15) == 0)
        return connection_say(c, "200 OK", "application/json", models, sizeof models - 1);
    if (strncmp(head, "GET /metrics ", 13) == 0)
        return connection_say(c, "200 OK", "text/plain; version=0.0.4", page,
                              metrics_page_write(page, (size_t)replica.active_count));
    if (strncmp(head, "GET /health", 11) == 0 || strncmp(head, "GET /version", 12) == 0)
        return connection_say(c, "200 OK", "application/json", "{}", 2);
    return connection_say(c, "404 Not Found", "application/json", "{\"detail\":\"Not Found\"}", 22);
}

static int body_is_known(const char *body, size_t length, int stream)
{
    if (replica.known.length != length || replica.known_stream != stream) {
        if (length < 256)
            return 0;
        free(replica.known.body);
        replica.known = chat_request_new(length, stream);
        replica.known_stream = stream;
    }
    return chat_request_matches(&replica.known, body, length);
}

/* A probe of the gateway's own asks for a token or two; it is no part of the rehearsed
 * conversation. */
static int body_is_probe(const char *body, size_t length)
{
    return length < 512 && memmem(body, length, "\"max_tokens\":1", 14) &&
           !memmem(body, length, "\"max_tokens\":100", 16);
}

static void report_once(const char *body, size_t length)
{
    static int reported;
    if (!reported++)
        fprintf(stderr, "fake_replica: unexpected body of %zu bytes: %.*s\n", length,
                (int)(length < 200 ? length : 200), body);
}

static int connection_answer(struct connection *c)
{
    if (strncmp(c->request.head, "POST /v1/chat/completions ", 26) != 0 &&
        strncmp(c->request.head, "POST /v1/completions ", 21) != 0)
        return connection_say_page(c);
    size_t length = c->request.body_bytes;
    int stream = memmem(c->body, length, "\"stream\":true", 13) != NULL;
    if (replica.check_bodies && !body_is_known(c->body, length, stream) &&
        !body_is_probe(c->body, length)) {
        report_once(c->body, length);
        return connection_say(c, "400 Bad Request", "text/plain", "body differs", 12);
    }
    c->answer = stream ? &replica.stream : &replica.plain;
    c->next_piece = c->sent = c->due = 0;
    if (stream)
        stream_join(c);
    return connection_advance(c);
}

static void connection_read(struct connection *c)
{
    ssize_t n = recv(c->source.fd, replica.read_buffer, sizeof replica.read_buffer, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        connection_close(c);
        return;
    }
    struct message_sink sink = {.take = body_take, .context = c};
    for (size_t used = 0; used < (size_t)n;) {
        used += message_feed(&c->request, replica.read_buffer + used, (size_t)n - used, sink);
        if (c->request.state == MESSAGE_BROKEN) {
            connection_close(c);
            return;
        }
        if (c->request.state == MESSAGE_DONE) {
            if (connection_answer(c) < 0)
                return;
            message_reset(&c->request);
        }
    }
}

static void connection_event(struct connection *c, uint32_t events)
{
    if (events & EPOLLOUT) {
        sockets_rewatch(replica.epoll, c->source.fd, EPOLLIN, c);
        if (c->answer && connection_flush(c) < 0)
            return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        connection_read(c);
}

static void listener_event(int listener)
{
    int fd;
    while ((fd = sockets_accept(listener)) >= 0) {
        struct connection *c = calloc(1, sizeof *c);
        c->source = (struct source){.kind = CONNECTION, .fd = fd};
        c->active_at = -1;
        message_reset(&c->request);
        sockets_watch(replica.epoll, fd, EPOLLIN, c);
    }
}

/* A late step is skipped, not made up for, as an engine would. From the end, because a finished
 * stream is replaced by the last one, which has had its turn. */
static void step_event(int timer)
{
    uint64_t expirations;
    if (read(timer, &expirations, sizeof expirations) < 0)
        return;
    for (long i = replica.active_count - 1; i >= 0; i--)
        connection_advance(replica.active[i]);
}

static void replica_listen(char *ports)
{
    for (char *port = strtok(ports, ","); port; port = strtok(NULL, ",")) {
        struct source *listener = malloc(sizeof *listener);
        *listener = (struct source){.kind = LISTENER, .fd = sockets_listen(atoi(port))};
        sockets_watch(replica.epoll, listener->fd, EPOLLIN, listener);
    }
}

static void replica_start_steps(uint64_t step_ns)
{
    static struct source timer = {.kind = STEP_TIMER};
    timer.fd = sockets_timer();
    sockets_timer_at(timer.fd, clock_now_ns() + step_ns, step_ns);
    sockets_watch(replica.epoll, timer.fd, EPOLLIN, &timer);
}

static _Noreturn void replica_run(void)
{
    struct epoll_event events[512];
    for (;;) {
        int n = sockets_wait(replica.epoll, events, 512, replica.spin);
        int steps_due = -1;
        for (int i = 0; i < n; i++) {
            struct source *source = events[i].data.ptr;
            if (source->kind == CONNECTION)
                connection_event((struct connection *)source, events[i].events);
            else if (source->kind == LISTENER)
                listener_event(source->fd);
            else
                steps_due = source->fd;
        }
        if (steps_due >= 0) /* last: it may close connections that have an event in this batch */
            step_event(steps_due);
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"ports", required_argument, NULL, 'p'},  {"step-us", required_argument, NULL, 's'},
        {"events", required_argument, NULL, 'e'}, {"any-body", no_argument, NULL, 'a'},
        {"spin", no_argument, NULL, 'P'},         {0}};
    char *ports = NULL;
    uint64_t step_us = 20000;
    size_t stream_events = 100;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'p')
            ports = optarg;
        else if (option == 's')
            step_us = strtoull(optarg, NULL, 10);
        else if (option == 'e')
            stream_events = strtoull(optarg, NULL, 10);
        else if (option == 'a')
            replica.check_bodies = 0;
        else if (option == 'P')
            replica.spin = 1;
        else
            return 2;
    }
    if (ports == NULL || stream_events < 3 || step_us == 0) {
        fprintf(stderr, "usage: fake_replica --ports P[,P…] [--step-us N] [--events N] "
                        "[--any-body] [--spin]\n");
        return 2;
    }
    sockets_raise_limit();
    replica.epoll = epoll_create1(EPOLL_CLOEXEC);
    replica.plain = chat_answer_json();
    replica.stream = chat_answer_stream(stream_events);
    replica_listen(ports);
    replica_start_steps(step_us * 1000);
    replica_run();
}
