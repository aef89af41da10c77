import logging
import socket

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcpy

import httptools
from httptools import HttpRequestParser

from headrace.proxy.clock cimport now_ns as clock_ns
from headrace.proxy.direct cimport send_now
from headrace.proxy.exchange cimport Exchange
from headrace.proxy.head cimport *
from headrace.proxy.plane cimport Plane
from headrace.proxy.wheel cimport Timed
from headrace.proxy.wire cimport Buffer, part

log = logging.getLogger("headrace.proxy")

cdef enum:
    MAX_PIPELINED_BYTES = 65536  # kept unread behind the request that is being served
    MAX_DISCARDED_BYTES = 1048576  # of a refused body, for the sake of the connection
    MAX_LINGER_BYTES = 67108864
    CLOSE_WAIT = 8  # tcpi_state: the client has sent its FIN

cdef Py_ssize_t LONGEST = 0x7fffffffffffffff  # past the end of any data
cdef uint64_t LINGER_NS = 4_000_000_000
cdef bytes CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


cdef class Downstream(Timed):
    def __init__(self, Plane plane not None):
        self.plane = plane
        self.phase = DOWN_CLOSED
        self.fd = -1

    def connection_made(self, transport):
        cdef uint64_t now = clock_ns()
        self.transport = transport
        address = transport.get_extra_info("peername")
        self.peer = address[0].partition("%")[0].encode() if address else b"unknown"
        self.feed = HttpRequestParser(self).feed_data
        self.send = transport.write
        # At 0 write_blocked says whether the transport holds anything back, so that what goes
        # straight to the socket overtakes nothing. A TLS transport counts an empty buffer as full.
        if transport.get_extra_info("ssl_object") is None:
            transport.set_write_buffer_limits(0)
            self.fd = transport.get_extra_info("socket").fileno()
        else:
            transport.set_write_buffer_limits(1)
        self.exchange = Exchange(self.plane, self)
        self.phase = DOWN_HEAD
        self.head_due_ns = now + self.plane.client_header_ns
        self.plane.wheel.set(self, self.head_due_ns)
        self.plane.client_came(self)

    def on_message_complete(self):
        self.parsed += 1

    # ---- the client leaves

    def eof_received(self):
        self._gone()
        return False

    def connection_lost(self, error):
        self._gone()
        self.phase = DOWN_CLOSED
        self.fd = -1
        self.plane.wheel.forget(self)
        self.plane.client_left(self)
        self.transport = self.send = self.feed = self.exchange = self.held = self.whole = None

    def _gone(self):
        if self.phase != DOWN_CLOSED:
            self.phase = DOWN_CLOSED
            self.exchange.on_client_gone()
            self._forget_body()

    def _forget_body(self):
        """Take a body that will not be served out of the account."""
        self.plane.block.self.buffered_bytes -= <int64_t>self.filled
        self.filled = 0
        self.whole = self.pieces = None

    cdef void poll(self):
        """While reading is paused the loop sees neither FIN nor RST: ask the kernel."""
        if not self.reading_paused or self.phase == DOWN_CLOSED:
            return
        sock = self.transport.get_extra_info("socket")
        if sock is None:
            return
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state in (7, CLOSE_WAIT):
            self.transport.abort()

    # ---- what the client sends

    def data_received(self, bytes data):
        try:
            if self.phase == DOWN_BUSY:
                self._stash(data)
            elif self.phase == DOWN_LINGER:
                self.lingered += PyBytes_GET_SIZE(data)
                if self.lingered > MAX_LINGER_BYTES:
                    self.transport.abort()
            elif self.phase != DOWN_CLOSED:
                self._consume(data)
        except Exception:
            log.exception("a client connection failed")
            if self.transport is not None:
                self.transport.abort()

    cdef int _stash(self, bytes data) except -1:
        self.held = data if self.held is None else self.held + data
        if PyBytes_GET_SIZE(self.held) > MAX_PIPELINED_BYTES:
            self._pause()
        return 0

    cdef int _consume(self, bytes data) except -1:
        """Requests one after the other, until the data ends or one of them is being served."""
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t size
        if self.held is not None and self.phase == DOWN_HEAD:
            data = self.held + data
            self.held = None
        size = PyBytes_GET_SIZE(data)
        self.consuming = True  # no recursion: next_request leaves the rest to this loop
        while at < size:
            if self.phase == DOWN_HEAD and self.write_blocked:
                self._stash(part(data, at, size))  # until the client has taken what it asked for
                break
            elif self.phase == DOWN_HEAD:
                at = self._take_head(data, at)
            elif self.phase == DOWN_BODY or self.phase == DOWN_DISCARD:
                at = self._take_body(data, at)
            elif self.phase == DOWN_BUSY:
                self._stash(part(data, at, size))
                break
            else:
                break
        self.consuming = False
        return 0

    cdef Py_ssize_t _take_head(self, bytes data, size_t at) except -1:
        """The head that starts at `at`, and what has come of its body; returns where the rest
        starts.
        """
        cdef const char *s = PyBytes_AS_STRING(data)
        cdef size_t size = PyBytes_GET_SIZE(data)
        cdef size_t found, end, stop
        cdef Exchange x = self.exchange
        while at < size and (s[at] == 13 or s[at] == 10):
            at += 1  # RFC 9112 2.2: empty lines before a request are passed over
        if at == size:
            return at
        found = head_end(s + at, size - at)
        end = at + found if found else size
        if <int64_t>(end - at) > self.plane.max_header_bytes:
            return self._refuse_head(431, "headers_too_large",
                                     "the head is above server.max_header_bytes")
        if not found:
            return self._wait_for_head(data, at)
        if head_read_request(s + at, end - at, &self.plane.request_id_names,
                             &self.plane.session_names, &x.r) != 0:
            return self._bad_at(size)
        if x.r.flags & HEAD_UPGRADE or (x.r.method.len == 7 and s[at] == 67):
            return self._refuse_head(501, "not_supported", "upgrades and tunnels are not supported")
        stop = end
        if x.r.content_length > 0:
            stop = end + min(size - end, <uint64_t>x.r.content_length)
        if not self._parses(data, at, stop):
            return self._bad_at(size)
        self._start(part(data, at, end), data, end, stop)
        return stop

    cdef int _start(self, bytes head, bytes data, size_t end, size_t stop) except -1:
        cdef Exchange x = self.exchange
        cdef uint64_t now = clock_ns()
        cdef size_t size = PyBytes_GET_SIZE(data)
        self.served = True
        if x.r.flags & HEAD_CHUNKED:
            framing_start(&self.f, FRAMING_CHUNKED, 0)
        else:
            framing_start(&self.f, FRAMING_LENGTH, max(x.r.content_length, 0))
        self.phase = DOWN_BUSY if self.f.done else DOWN_BODY
        x.begin(head, now)
        if self.phase == DOWN_BUSY and x.state != 0:
            self._served(b"", now)
        elif self.phase == DOWN_BODY:
            if x.r.flags & HEAD_CONTINUE and end == size and x.r.minor == 1:
                self.transport.write(CONTINUE)
            self.plane.wheel.set(self, now + self.plane.client_body_ns)
            if stop > end:
                self._fill(data, end, stop)
        elif self.phase == DOWN_DISCARD and stop > end:
            self._fill(data, end, stop)
        return 0

    def _wait_for_head(self, bytes data, size_t at):
        """Not complete: keep it, unless it is no HTTP already."""
        cdef const char *s = PyBytes_AS_STRING(data)
        cdef size_t size = PyBytes_GET_SIZE(data)
        cdef char *lf = <char *>memchr(s + at, 10, size - at)
        cdef unsigned char first = s[at]
        if not 65 <= first <= 90 or lf == s + at or (lf != NULL and (lf - 1)[0] != 13):
            return self._bad_at(size)
        if self.served and self.head_due_ns == 0:
            self.head_due_ns = clock_ns() + self.plane.client_header_ns
            self.plane.wheel.set(self, self.head_due_ns)
        self.held = part(data, at, size) if at else data
        return size

    cdef Py_ssize_t _take_body(self, bytes data, size_t at) except -1:
        cdef size_t size = PyBytes_GET_SIZE(data)
        cdef size_t stop = at
        cdef const char *payload
        cdef size_t n
        cdef framing f = self.f
        while stop < size and not f.done and not f.bad:
            stop += framing_next(&f, PyBytes_AS_STRING(data) + stop, size - stop, &payload, &n)
        if f.bad or not self._parses(data, at, stop):
            return self._bad_at(size)
        self._fill(data, at, stop)
        return stop

    cdef int _fill(self, bytes data, size_t at, size_t stop) except -1:
        """Bytes of the body's framing, parsed already: keep or drop what is body in them."""
        cdef const char *payload
        cdef size_t n
        while at < stop and (self.phase == DOWN_BODY or self.phase == DOWN_DISCARD):
            at += framing_next(&self.f, PyBytes_AS_STRING(data) + at, stop - at, &payload, &n)
            if self.phase == DOWN_DISCARD:
                self.lingered += n
                if self.lingered > MAX_DISCARDED_BYTES:
                    self._linger()
            elif n:
                self._keep(data, payload - PyBytes_AS_STRING(data), n)
        if self.f.done and self.phase == DOWN_DISCARD:
            self._discarded()
        elif self.f.done and self.phase == DOWN_BODY:
            self._body_complete()
        elif self.phase == DOWN_BODY and self.plane.is_over_buffered():
            self._pause()
            self.plane.hold_body(self)
        return 0

    cdef int _keep(self, bytes data, size_t at, size_t n) except -1:
        cdef const char *payload = PyBytes_AS_STRING(data) + at
        cdef size_t length = max(self.exchange.r.content_length, 0)
        if self.f.kind == FRAMING_LENGTH and self.filled == 0 and n == length:
            self.whole = part(data, at, at + n)
        elif self.f.kind == FRAMING_LENGTH:
            if self.whole is None:
                self.whole = PyBytes_FromStringAndSize(NULL, length)
            memcpy(PyBytes_AS_STRING(self.whole) + self.filled, payload, n)
        elif <int64_t>(self.filled + n) > self.plane.max_body_bytes:
            self.exchange.refuse_body()
            return 0
        else:
            if self.pieces is None:
                self.pieces = Buffer()
            self.pieces.add(payload, n)
        self.filled += n
        self.plane.block.self.buffered_bytes += <int64_t>n
        return 0

    cdef int _body_complete(self) except -1:
        cdef bytes body = self.whole
        if body is None:
            body = self.pieces.take() if self.pieces is not None else b""
        self.whole = self.pieces = None
        self.filled = 0
        self.phase = DOWN_BUSY
        self._served(body, clock_ns())
        return 0

    cdef int _served(self, bytes body, uint64_t now) except -1:
        if self.parsed != 1:
            return self._bad()  # parser and framing disagree on where the message ends
        return self.exchange.on_request(body, now)

    cdef bint _parses(self, bytes data, size_t start, size_t end):
        if start == end:
            return True
        try:
            if start == 0 and end == <size_t>PyBytes_GET_SIZE(data):
                self.feed(data)
            else:
                self.feed(part(data, start, end))
            return True
        except httptools.HttpParserError:
            return False

    # ---- refusals

    cdef int _bad(self) except -1:
        self.plane.block.self.bad_http += 1
        self.phase = DOWN_BUSY
        self.exchange.refuse(400, "bad_http", "the request is not framed as HTTP", True)
        return 0

    def _bad_at(self, size_t size):
        self._bad()
        return size

    def _refuse_head(self, int status, str code, str message):
        """A head that is not even looked at; the connection cannot go on."""
        self.phase = DOWN_BUSY
        self.exchange.refuse(status, code, message, True)
        return LONGEST

    cdef void on_due(self, uint64_t now_ns):
        if self.phase == DOWN_BUSY:
            self.exchange.on_due(now_ns)
        elif self.phase == DOWN_BODY or (self.phase == DOWN_HEAD and self.held is not None):
            self.phase = DOWN_BUSY
            self._forget_body()
            self.exchange.refuse(408, "client_timeout", "the request did not arrive in time", True)
        elif self.transport is not None:
            if self.phase == DOWN_LINGER:
                self.transport.abort()
            else:
                self.transport.close()

    # ---- answers

    cdef size_t _send_now(self, const char *data, size_t size) noexcept:
        """What goes straight to the socket, unless the transport holds something back."""
        return 0 if self.fd < 0 or self.write_blocked else send_now(self.fd, data, size)

    cdef int write(self, bytes data) except -1:
        cdef size_t size = PyBytes_GET_SIZE(data)
        cdef size_t sent
        if self.phase == DOWN_CLOSED:
            return 0
        sent = self._send_now(PyBytes_AS_STRING(data), size)
        if sent < size:
            self.send(memoryview(data)[sent:] if sent else data)
        return 0

    cdef int write_out(self, Buffer out) except -1:
        cdef size_t sent
        if self.phase != DOWN_CLOSED:
            sent = self._send_now(out.data, out.size)
            if sent < out.size:
                self.send(out.take()[sent:])
        out.size = 0
        return 0

    cdef int next_request(self, bint close) except -1:
        """The answer is written: read on, or close."""
        if self.phase == DOWN_CLOSED:
            return 0
        if self.phase == DOWN_BODY:
            return self.refuse_rest(close)
        if close or self.plane.leaving:
            return self._linger()
        self.phase = DOWN_HEAD
        self.parsed = 0
        self.head_due_ns = 0
        self.plane.wheel.set(self, clock_ns() + self.plane.keepalive_ns)
        return self._go_on()

    cdef int _go_on(self) except -1:
        """Read, and take the next request if it is here."""
        cdef bytes rest
        self._resume()
        if self.held is not None and not self.consuming and not self.write_blocked:
            rest = self.held
            self.held = None
            self._consume(rest)
        return 0

    cdef int refuse_rest(self, bint close) except -1:
        """Answered before the body had been read: throw it away if it is short, for the
        connection's sake.
        """
        self._forget_body()
        if close or self.exchange.r.flags & HEAD_CONTINUE or self.f.left > MAX_DISCARDED_BYTES:
            return self._linger()
        self.lingered = 0
        self.phase = DOWN_DISCARD
        return 0

    def _discarded(self):
        self.phase = DOWN_BUSY
        self.next_request(False)

    cdef int _linger(self) except -1:
        """Close so that the answer arrives: a close over unread bytes would reset it away."""
        self.phase = DOWN_LINGER
        self.held = None
        self.lingered = 0
        self._resume()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.plane.wheel.set(self, clock_ns() + LINGER_NS)
        else:
            self.transport.close()
        return 0

    cdef int cut(self) except -1:
        """End a response that cannot be completed: what has been written still goes out."""
        if self.phase != DOWN_CLOSED:
            self.phase = DOWN_LINGER
            self.transport.close()
        return 0

    cdef int stop(self) except -1:
        """No further requests: an idle connection goes at once."""
        if self.phase == DOWN_HEAD and self.held is None:
            self.transport.close()
        return 0

    # ---- back-pressure

    cdef int _pause(self) except -1:
        if not self.reading_paused:
            self.reading_paused = True
            self.transport.pause_reading()
            self.plane.watch(self)
        return 0

    cdef int _resume(self) except -1:
        if self.reading_paused and self.phase != DOWN_CLOSED:
            self.reading_paused = False
            self.transport.resume_reading()
        return 0

    def resume_body(self):
        """There is room for more of it."""
        self._resume()

    def pause_writing(self):
        self.write_blocked = True
        self.unwritten = self.transport.get_write_buffer_size()
        if self.phase == DOWN_BUSY:
            self.exchange.on_write_blocked(True)

    def resume_writing(self):
        self.write_blocked = False
        if self.phase == DOWN_BUSY:
            self.exchange.on_write_blocked(False)
        elif self.phase == DOWN_HEAD:
            self._go_on()
