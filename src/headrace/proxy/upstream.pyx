import asyncio
import errno
import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

import httptools
from httptools import HttpResponseParser

from headrace.core.fleet cimport FAILURE_CONNECT_TIME, FAILURE_REFUSED, FAILURE_RESET, FAILURE_STALE
from headrace.proxy.clock cimport now_ns as clock_ns
from headrace.proxy.direct cimport send_both
from headrace.proxy.exchange cimport Exchange
from headrace.proxy.head cimport *
from headrace.proxy.pool cimport Pool
from headrace.proxy.wheel cimport NEVER, Timed
from headrace.proxy.wire cimport Buffer, part

log = logging.getLogger("headrace.proxy")

cdef extern from "sys/ioctl.h" nogil:
    int ioctl(int fd, unsigned long request, ...)

cdef extern from "linux/sockios.h" nogil:
    unsigned long SIOCOUTQ

cdef enum:
    MAX_HEAD_BYTES = 262144  # of a replica's response


class _Silent:
    """The parser judges heads; what they say is read from their bytes."""

    __slots__ = ()


SILENT = _Silent()


cdef class Upstream(Timed):
    def __init__(self, Pool pool):
        self.pool = pool
        self.phase = UP_CONNECTING
        pool.open.add(self)

    # ---- connecting

    cdef void connect(self, uint64_t now_ns):
        self.pool.plane.wheel.set(self, now_ns + self.pool.plane.connect_ns)
        self.task = self.pool.plane.loop.create_task(self._connect())

    async def _connect(self):
        cdef int failure = FAILURE_REFUSED
        pool = self.pool
        try:
            await pool.plane.loop.create_connection(
                lambda: self, pool.host, pool.port, ssl=pool.tls,
                server_hostname=pool.host if pool.tls else None,
            )
            return
        except asyncio.CancelledError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                pool.plane.free_descriptors()
        except Exception:
            log.exception("connecting to a replica failed")
        finally:
            self.task = None
        if self.phase == UP_CONNECTING:
            self._broke(failure)

    def connection_made(self, transport):
        self.transport = transport
        self.write = transport.write
        transport.set_write_buffer_limits(0)
        if self.phase != UP_CONNECTING or self.exchange is None:
            self.phase = UP_CLOSED
            transport.abort()
            return
        self.pool.plane.wheel.set(self, NEVER)
        self.fd = transport.get_extra_info("socket").fileno()
        self.direct = self.pool.tls is None
        self.phase = UP_IDLE
        self.exchange.on_connected(self)

    cdef void on_due(self, uint64_t now_ns):
        if self.phase == UP_CONNECTING:
            self._broke(FAILURE_CONNECT_TIME)
        elif self.phase == UP_IDLE:
            self.close()

    # ---- one exchange

    cdef int send(self, Exchange exchange, Buffer head, bytes body) except -1:
        """Write a request and empty `head`; body may be empty."""
        cdef size_t head_bytes = head.size
        cdef size_t body_bytes = PyBytes_GET_SIZE(body)
        cdef size_t sent = 0
        self.exchange = exchange
        self.phase = UP_HEAD
        if self.direct and not self.write_blocked:
            sent = send_both(self.fd, head.data, head_bytes, PyBytes_AS_STRING(body), body_bytes)
        if sent < head_bytes:
            self.write(head.take()[sent:])
        head.size = 0
        if sent < head_bytes + body_bytes:
            self.write(memoryview(body)[sent - head_bytes if sent > head_bytes else 0:])
        return 0

    cdef bint is_usable(self):
        """Whether it may carry another request: neither closed nor too old."""
        if self.phase != UP_IDLE:
            return False
        if clock_ns() - self.idle_since_ns < self.pool.plane.upstream_idle_ns:
            return True
        self.close()
        return False

    cdef bint has_unsent(self):
        """Whether part of the request is still on its way: a replica that has answered may never
        read it.
        """
        cdef int unread = 0
        if self.transport.get_write_buffer_size():
            return True
        return ioctl(self.fd, SIOCOUTQ, &unread) == 0 and unread > 0

    cdef void release(self, uint64_t now_ns):
        """The response is complete and the connection sound: it waits for the next request."""
        self.exchange = None
        self.phase = UP_IDLE
        self.reused = True
        if not self.parsing_body:
            self.feed = None
        self.resume()
        self.idle_since_ns = now_ns
        self.pool.plane.wheel.set(self, now_ns + self.pool.plane.upstream_idle_ns)
        self.pool.give_back(self)

    cdef void close(self):
        """Close at once; for the replica that is the abort of whatever it was doing."""
        if self.phase == UP_CLOSED:
            return
        self.phase = UP_CLOSED
        self.exchange = None
        self.held = None
        self.pool.plane.wheel.forget(self)
        self.pool.forget(self)
        if self.task is not None:
            self.task.cancel()
            self.task = None
        if self.transport is not None:
            self.transport.abort()

    cdef void pause(self):
        if not self.paused and self.phase != UP_CLOSED and self.phase != UP_CONNECTING:
            self.paused = True
            self.transport.pause_reading()

    cdef void resume(self):
        if self.paused and self.phase != UP_CLOSED:
            self.paused = False
            self.transport.resume_reading()

    cdef void _broke(self, int failure):
        cdef Exchange exchange = self.exchange
        self.close()
        if exchange is not None:
            exchange.on_broken(failure)

    # ---- what arrives

    def data_received(self, bytes data):
        if self.phase == UP_BODY:
            if self.parsing_body and not self._parses(data, PyBytes_GET_SIZE(data), True):
                self.parsing_body = False
            self.exchange.on_body(data, 0)
        elif self.phase == UP_HEAD:
            self._read_head(data)
        else:
            self.close()  # nobody asked for anything

    def eof_received(self):
        cdef Exchange exchange = self.exchange
        if self.phase == UP_BODY and exchange is not None:
            exchange.on_body_eof()
        elif self.phase != UP_CLOSED:
            self._broke(self._failure())
        return False

    def connection_lost(self, error):
        self.write = self.feed = None
        self.direct = False
        if self.phase == UP_CLOSED:
            self.transport = None
            return
        if self.phase == UP_CONNECTING:
            return
        self._broke(self._failure())

    def _failure(self):
        if self.reused and self.phase == UP_HEAD and self.held is None:
            return FAILURE_STALE
        return FAILURE_RESET

    def pause_writing(self):
        self.write_blocked = True  # a request is kept whole: there is nothing to hold back

    def resume_writing(self):
        self.write_blocked = False

    cdef int _read_head(self, bytes data) except -1:
        cdef const char *start
        cdef size_t size
        cdef size_t end
        if self.held is not None:
            data = self.held + data
            self.held = None
        start = PyBytes_AS_STRING(data)
        size = PyBytes_GET_SIZE(data)
        end = head_end(start, size)
        if 0 < end <= MAX_HEAD_BYTES:
            return self._accept_head(data, end)
        if end or size > MAX_HEAD_BYTES or memcmp(start, b"HTTP/1.", min(size, 7)) != 0:
            self._broke(FAILURE_RESET)
        else:
            self.held = data
        return 0

    cdef int _accept_head(self, bytes data, size_t size) except -1:
        """The head ends at size; what follows in data is body, or the next head after an interim
        one.
        """
        cdef response_head a
        cdef size_t total = PyBytes_GET_SIZE(data)
        cdef Exchange exchange = self.exchange
        cdef bint whole
        if head_read_response(PyBytes_AS_STRING(data), size, &a) != 0 or a.status == 101:
            self._broke(FAILURE_RESET)
            return 0
        if a.status < 200:
            if not self._parses(data, size, False):
                self._broke(FAILURE_RESET)
            elif total > size:
                self._read_head(part(data, size, total))
            return 0
        self.parsing_body = (a.content_length >= 0 and not exchange.is_head
                             and a.status != 204 and a.status != 304)
        whole = self.parsing_body and <uint64_t>a.content_length >= total - size
        if not self._parses(data, size, whole):
            self._broke(FAILURE_RESET)
            return 0
        self.phase = UP_BODY
        exchange.on_head(data, size, &a)
        return 0

    cdef bint _parses(self, bytes data, size_t size, bint whole):
        """Let the parser judge the first size bytes, or all of them."""
        if self.feed is None:
            self.feed = HttpResponseParser(SILENT).feed_data
        try:
            self.feed(data if whole else part(data, 0, size))
            return True
        except httptools.HttpParserError:
            self.feed = None
            return False
