/* Non-blocking loopback sockets. Every function exits with a message when the system refuses: a rig
 * has no plan B. */
#ifndef LOADGEN_SOCKETS_H
#define LOADGEN_SOCKETS_H

#include <stdint.h>

void sockets_raise_limit(void);
int sockets_listen(int port);
int sockets_connect(int port);    /* returns at once; the socket turns writable when it stands */
int sockets_accept(int listener); /* -1: nobody waits */
int sockets_timer(void);
void sockets_timer_at(int timer, uint64_t at_ns, uint64_t every_ns); /* monotonic; every 0: once */
void sockets_watch(int epoll, int fd, uint32_t events, void *owner);
/* epoll_wait that gives up after a second. Spinning, it never sleeps but yields the core: then
 * nobody who sends to this process pays for waking it. */
struct epoll_event;
int sockets_wait(int epoll, struct epoll_event *events, int room, int spin);
void sockets_rewatch(int epoll, int fd, uint32_t events, void *owner);
_Noreturn void sockets_die(const char *what);

#endif
