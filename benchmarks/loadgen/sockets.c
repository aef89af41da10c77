#define _GNU_SOURCE
#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

void sockets_die(const char *what)
{
    perror(what);
    exit(1);
}

void sockets_raise_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static struct sockaddr_in sockets_loopback(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int sockets_new(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        sockets_die("socket");
    return fd;
}

static void sockets_no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int sockets_listen(int port)
{
    int fd = sockets_new(), on = 1;
    struct sockaddr_in address = sockets_loopback(port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 4096) < 0)
        sockets_die("listen");
    return fd;
}

int sockets_connect(int port)
{
    int fd = sockets_new();
    struct sockaddr_in address = sockets_loopback(port);
    sockets_no_delay(fd);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        sockets_die("connect");
    return fd;
}

int sockets_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        sockets_no_delay(fd);
    else if (errno != EAGAIN && errno != ECONNABORTED)
        sockets_die("accept");
    return fd;
}

int sockets_timer(void)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0)
        sockets_die("timerfd");
    return fd;
}

static struct timespec sockets_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

void sockets_timer_at(int timer, uint64_t at_ns, uint64_t every_ns)
{
    struct itimerspec when = {.it_value = sockets_timespec(at_ns),
                              .it_interval = sockets_timespec(every_ns)};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

void sockets_watch(int epoll, int fd, uint32_t events, void *owner)
{
    struct epoll_event event = {.events = events, .data.ptr = owner};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        sockets_die("epoll_ctl");
}

void sockets_rewatch(int epoll, int fd, uint32_t events, void *owner)
{
    struct epoll_event event = {.events = events, .data.ptr = owner};
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) < 0)
        sockets_die("epoll_ctl");
}

int sockets_wait(int epoll, struct epoll_event *events, int room, int spin)
{
    int n = epoll_wait(epoll, events, room, spin ? 0 : 1000);
    if (spin && n == 0)
        sched_yield();
    return n;
}
