/* generate: HTTP load on one port over kept-alive connections; checks every byte that comes back
 * and prints one JSON line.
 *
 *   generate --port 18200 [--connections 64] [--seconds 5] [--requests N] [--body-bytes 1024]
 *            [--rate R] [--stream] [--events 100] [--spread-us 0] [--spin]
 *
 * Without --rate each connection sends its next request when the last answer is complete (closed
 * loop). With it, requests are due at Poisson times and latency counts from the time a request was
 * due, whether or not a connection was free.
 * --spread-us starts the connections evenly over that time. Requests in flight at the end are
 * waited for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chat.h"
#include "clock.h"
#include "message.h"
#include "options.h"
#include "result.h"
#include "sockets.h"

/* What is still missing this long after the end is reported as lost. */
#define PATIENCE_NS 30000000000u

enum client_state { CONNECTING, IDLE, SENDING, WAITING };

struct client {
    int fd;
    enum client_state state;
    int mismatch;
    uint64_t due_ns;
    uint64_t serial;
    size_t sent;
    struct message answer;
};

static struct load_options options;

static struct {
    int epoll, timer;
    struct client *clients;
    int opened;
    struct client **idle;
    int idle_count, busy_count;
    struct chat_request request;
    struct chat_answer expected;
    uint64_t started_ns, stop_ns, next_due_ns;
    uint64_t random;
    struct result result;
} run = {.random = 0x9e3779b97f4a7c15u};

static void client_send(struct client *c);

/* xorshift64*: uniform in (0, 1]. */
static double random_uniform(void)
{
    run.random ^= run.random >> 12;
    run.random ^= run.random << 25;
    run.random ^= run.random >> 27;
    return ((double)(run.random * 0x2545f4914f6cdd1du >> 11) + 1) / 9007199254740992.0;
}

static int open_loop(void) { return options.rate_per_s > 0; }

static int may_start(uint64_t now)
{
    return now < run.stop_ns && run.result.sent < options.max_requests;
}

static void client_start(struct client *c, uint64_t due_ns)
{
    c->due_ns = due_ns;
    c->serial = ++run.result.sent;
    c->sent = 0;
    c->mismatch = 0;
    message_reset(&c->answer);
    run.busy_count++;
    client_send(c);
}

static void client_rest(struct client *c)
{
    c->state = IDLE;
    uint64_t now = clock_now_ns();
    if (open_loop())
        run.idle[run.idle_count++] = c;
    else if (may_start(now))
        client_start(c, now);
}

static void client_connect(struct client *c)
{
    c->fd = sockets_connect(options.port);
    c->state = CONNECTING;
    sockets_watch(run.epoll, c->fd, EPOLLOUT, c);
}

/* The connection is lost or its answer made no sense: count, and go on with a new one. */
static void client_fail(struct client *c, uint64_t *counter)
{
    ++*counter;
    if (c->state == SENDING || c->state == WAITING)
        run.busy_count--;
    close(c->fd);
    if (clock_now_ns() < run.stop_ns)
        client_connect(c);
}

static void client_send(struct client *c)
{
    static char head[256];
    static int head_bytes;
    if (head_bytes == 0)
        head_bytes = sprintf(
            head,
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nuser-agent: generate\r\n"
            "content-type: application/json\r\ncontent-length: %zu\r\n\r\n",
            options.port, options.body_bytes);
    static char wire[1 << 20];
    chat_request_number(&run.request, c->serial);
    memcpy(wire, head, (size_t)head_bytes);
    memcpy(wire + head_bytes, run.request.body, options.body_bytes);
    size_t total = (size_t)head_bytes + options.body_bytes;
    ssize_t n = send(c->fd, wire + c->sent, total - c->sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) {
        c->state = SENDING;
        client_fail(c, &run.result.cut);
        return;
    }
    c->sent += n > 0 ? (size_t)n : 0;
    int blocked = c->sent < total;
    if (blocked || c->state == SENDING)
        sockets_rewatch(run.epoll, c->fd, blocked ? EPOLLOUT | EPOLLIN : EPOLLIN, c);
    c->state = blocked ? SENDING : WAITING;
}

static void answer_take(void *context, const char *piece, size_t length, uint64_t offset)
{
    struct client *c = context;
    if (offset == 0)
        latency_record(&run.result.first_byte, clock_now_ns() - c->due_ns);
    if (offset + length > run.expected.body_length ||
        memcmp(run.expected.body + offset, piece, length) != 0)
        c->mismatch = 1;
}

static void client_complete(struct client *c)
{
    run.busy_count--;
    if (message_status(&c->answer) != 200)
        run.result.bad_status++;
    else if (c->mismatch || c->answer.body_bytes != run.expected.body_length)
        run.result.bad_body++;
    else {
        run.result.completed++;
        run.result.events += options.stream ? options.events : 0;
        run.result.body_bytes += c->answer.body_bytes;
        latency_record(&run.result.latency, clock_now_ns() - c->due_ns);
    }
    client_rest(c);
}

static void client_read(struct client *c)
{
    static char buffer[262144];
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        if (c->state == IDLE && open_loop()) /* a closed idle connection must leave the stack */
            for (int i = 0; i < run.idle_count; i++)
                if (run.idle[i] == c) {
                    run.idle[i] = run.idle[--run.idle_count];
                    break;
                }
        client_fail(c, &run.result.cut);
        return;
    }
    run.result.reads++;
    struct message_sink sink = {.take = answer_take, .context = c};
    size_t used = message_feed(&c->answer, buffer, (size_t)n, sink);
    if (c->answer.state == MESSAGE_BROKEN || used < (size_t)n)
        client_fail(c, &run.result.broken);
    else if (c->answer.state == MESSAGE_DONE)
        client_complete(c);
}

static void client_event(struct client *c, uint32_t events)
{
    if (c->state == CONNECTING) {
        if (events & (EPOLLERR | EPOLLHUP)) {
            client_fail(c, &run.result.cut);
            return;
        }
        sockets_rewatch(run.epoll, c->fd, EPOLLIN, c);
        client_rest(c);
        return;
    }
    if (c->state == SENDING && events & EPOLLOUT)
        client_send(c);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        client_read(c);
}

/* Opens the connections whose turn has come. Returns when the next is due, 0 if all are open. */
static uint64_t open_due(uint64_t now)
{
    uint64_t gap = options.spread_ns / (uint64_t)options.connections;
    while (run.opened < options.connections) {
        uint64_t due = run.started_ns + gap * (uint64_t)run.opened;
        if (due > now)
            return due;
        client_connect(&run.clients[run.opened++]);
    }
    return 0;
}

/* Starts the requests that are due while connections are free. Returns when to look again, 0 for
 * "when one is free". */
static uint64_t start_due(uint64_t now)
{
    while (run.next_due_ns <= now && run.idle_count > 0 && may_start(run.next_due_ns)) {
        client_start(run.idle[--run.idle_count], run.next_due_ns);
        run.next_due_ns += (uint64_t)(-log(random_uniform()) / options.rate_per_s * 1e9);
    }
    return run.next_due_ns > now ? run.next_due_ns : 0;
}

static void timer_arm(uint64_t a, uint64_t b)
{
    static uint64_t armed;
    uint64_t at = a == 0 ? b : b == 0 ? a : a < b ? a : b;
    if (at == 0 || at > run.stop_ns)
        at = run.stop_ns;
    if (at != armed && at > clock_now_ns())
        sockets_timer_at(run.timer, at, 0);
    armed = at;
}

static int finished(uint64_t now)
{
    if (run.busy_count > 0)
        return now > run.stop_ns + PATIENCE_NS;
    return !may_start(now);
}

static void run_load(void)
{
    struct epoll_event events[512];
    uint64_t now;
    while (!finished(now = clock_now_ns())) {
        uint64_t open_at = now < run.stop_ns ? open_due(now) : 0;
        uint64_t start_at = open_loop() ? start_due(now) : 0;
        if (now < run.stop_ns)
            timer_arm(open_at, start_at);
        int n = sockets_wait(run.epoll, events, 512, options.spin);
        for (int i = 0; i < n; i++) {
            uint64_t expirations;
            if (events[i].data.ptr == NULL)
                (void)!read(run.timer, &expirations, sizeof expirations);
            else
                client_event(events[i].data.ptr, events[i].events);
        }
    }
}

int main(int argc, char **argv)
{
    if (options_parse(&options, argc, argv) < 0)
        return 2;
    sockets_raise_limit();
    run.epoll = epoll_create1(EPOLL_CLOEXEC);
    run.timer = sockets_timer();
    sockets_watch(run.epoll, run.timer, EPOLLIN, NULL);
    run.clients = calloc((size_t)options.connections, sizeof *run.clients);
    run.idle = calloc((size_t)options.connections, sizeof *run.idle);
    run.request = chat_request_new(options.body_bytes, options.stream);
    run.expected = options.stream ? chat_answer_stream(options.events) : chat_answer_json();
    run.started_ns = run.next_due_ns = clock_now_ns();
    run.stop_ns = run.started_ns + (uint64_t)(options.seconds * 1e9);
    run_load();
    run.result.lost = (uint64_t)run.busy_count;
    result_print(&run.result, (double)(clock_now_ns() - run.started_ns) / 1e9);
    return !result_is_good(&run.result);
}
