"""Straight to the socket: what the kernel takes at once needs no bytes object and no transport.

Only while the transport holds nothing back itself, or bytes would overtake each other. Whatever was
not sent, for whichever reason, goes to the transport: it waits, or finds the error and reports it.
"""

from libc.string cimport memset
from posix.uio cimport iovec

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t _send "send"(int fd, const void *data, size_t size, int flags)
    ssize_t _sendmsg "sendmsg"(int fd, const msghdr *message, int flags)


# Bytes that were sent, 0 on any error.
cdef inline size_t send_now(int fd, const char *data, size_t size) noexcept nogil:
    return <size_t>max(_send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL), 0)


# The same for two pieces that follow each other.
cdef inline size_t send_both(int fd, const char *first, size_t first_size, const char *second,
                             size_t second_size) noexcept nogil:
    cdef iovec pieces[2]
    cdef msghdr message
    if second_size == 0:
        return send_now(fd, first, first_size)
    pieces[0].iov_base, pieces[0].iov_len = <void *>first, first_size
    pieces[1].iov_base, pieces[1].iov_len = <void *>second, second_size
    memset(&message, 0, sizeof(message))
    message.msg_iov, message.msg_iovlen = pieces, 2
    return <size_t>max(_sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL), 0)
