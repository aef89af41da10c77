import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from headrace.core.balancer cimport (
    NO_REPLICA,
    OVERLOADED,
    ROUTED,
    Lease,
    RouteRequest,
)
from headrace.core.fleet cimport *
from headrace.proxy cimport again, booking, gate, intake, own, relay, tracing
from headrace.proxy.clock cimport now_ns as clock_ns
from headrace.proxy.downstream cimport Downstream
from headrace.proxy.head cimport *
from headrace.proxy.observer cimport Observer
from headrace.proxy.plane cimport Plane
from headrace.proxy.pool cimport Pool
from headrace.proxy.upstream cimport Upstream
from headrace.proxy.wire cimport Buffer, write_request, write_response

from headrace.proxy import replies

log = logging.getLogger("headrace.proxy")

cdef enum:
    SENT_AT_ONCE_BYTES = 32768  # of a request: any socket buffer takes it
    MAX_HELD_BYTES = 65536


cdef class Exchange:
    def __init__(self, Plane plane, Downstream down):
        self.plane = plane
        self.down = down
        self.lease = Lease()
        self.seen = Observer()
        self.state = X_IDLE

    @property
    def owner(self):
        return self.plane

    @property
    def request(self):
        """The head of the request that is being served; None between requests."""
        return self.head if self.state != X_IDLE else None

    # ---- the request

    cdef int begin(self, bytes head, uint64_t now_ns) except -1:
        """A head is complete (self.r describes it). Ends in X_READING, or answered."""
        self.head = head
        self.body = None
        self.model = None
        self.state = X_READING
        self.began_ns = now_ns
        self.status = self.endpoint = self.retries = 0
        self.stream = self.is_head = self.strips_usage = self.resent = False
        self.queue_wait_ns = self.sent_ns = self.byte_ns = self.blocked_ns = 0
        self.bytes_in = self.bytes_out = 0
        self.closes = self.r.minor == 0 or self.r.flags & HEAD_CLOSE != 0
        self.request_id = self._read_id()
        tracing.begin(self)
        if gate.check(self, now_ns) == 0:
            self.routed = True
            self.plane.block.self.requests += 1
        return 0

    cdef bytes _read_id(self):
        """The client's id if it is plain text, else a new one."""
        cdef const char *id = PyBytes_AS_STRING(self.head) + self.r.request_id.at
        cdef uint64_t size = self.r.request_id.len
        cdef uint64_t i
        if not 0 < size <= 256:
            return self.plane.new_request_id()
        for i in range(size):
            if not 32 <= <unsigned char>id[i] < 127:
                return self.plane.new_request_id()
        return PyBytes_FromStringAndSize(id, size)

    cdef int on_request(self, bytes body, uint64_t now_ns) except -1:
        if not self.routed:
            return 0  # a page of ours that is still being fetched
        self.body = body
        self.read_ns = now_ns
        self.kept_bytes = self.bytes_in = PyBytes_GET_SIZE(body)
        if intake.understand(self) == 0:
            return self.dispatch(now_ns)
        return 0

    cdef int dispatch(self, uint64_t now_ns) except -1:
        """Route what plane.request describes."""
        cdef int verdict = self.plane.balancer.route(self.plane.request, self.lease, now_ns)
        if verdict == ROUTED:
            booking.decided(self)
            return self._attempt(now_ns)
        if verdict == OVERLOADED and self.plane.queue_size:
            if self.plane.waiting_room.take(self, now_ns):
                return 0
        elif verdict == NO_REPLICA and self.model.on_demand:
            if self.plane.waiting_room.hold(self, now_ns):
                return 0
        return own.refuse_by(self, verdict, now_ns)

    # ---- the waiting room

    def wait(self, uint64_t now_ns, bint is_held):
        """Wait for room on a replica, or (held) for a replica, with what routing has to know."""
        self.state = X_QUEUED
        self.is_held = is_held
        self.queued_ns = now_ns
        self.waiting_request, self.plane.request = self.plane.request, RouteRequest()
        self.plane.block.self.queued += 1
        self.plane.block.models[self.model.id].queued += 1
        if is_held:
            self.plane.block.self.held += 1
            self.plane.held_bytes += self.kept_bytes
            self.plane.wheel.set(self.down, min(now_ns + self.plane.hold_timeout_ns,
                                                self.plane.deadline(self.began_ns,
                                                                    self.plane.request_ns)))
        else:
            self.plane.wheel.set(self.down, now_ns + self.plane.queue_timeout_ns)

    def stop_waiting(self):
        self.queue_wait_ns = clock_ns() - self.queued_ns
        self.waiting_request = None
        self.plane.block.self.queued -= 1
        self.plane.block.models[self.model.id].queued -= 1
        if self.is_held:
            self.plane.block.self.held -= 1
            self.plane.held_bytes -= self.kept_bytes

    def try_waiting(self):
        """Whether a replica has room by now; then the request is on its way."""
        cdef uint64_t now = clock_ns()
        cdef int verdict = self.plane.balancer.route(self.waiting_request, self.lease, now)
        if verdict == OVERLOADED or (verdict == NO_REPLICA and self.is_held):
            return False
        self.stop_waiting()
        if verdict == ROUTED:
            booking.decided(self)
            self._attempt(now)
        else:
            own.refuse_by(self, verdict, now)
        return True

    @property
    def priority(self):
        return self.r.priority

    @property
    def model_id(self):
        return self.model.id

    # ---- attempts

    cdef int _attempt(self, uint64_t now_ns) except -1:
        cdef Pool pool = None
        cdef Upstream up
        if self.lease.slot < len(self.plane.pools):
            pool = self.plane.pools[self.lease.slot]
        if pool is None:  # the row is ahead of the snapshot
            return self.on_broken(FAILURE_REFUSED)
        up = None if self.resent else pool.take()
        if up is not None:
            return self._send(up, now_ns)
        self.state = X_CONNECTING
        up = self.up = Upstream(pool)
        up.exchange = self
        up.connect(now_ns)
        return 0

    cdef int on_connected(self, Upstream up) except -1:
        return self._send(up, clock_ns())

    cdef int _send(self, Upstream up, uint64_t now_ns) except -1:
        cdef Buffer out = self.plane.out
        cdef Pool pool = up.pool
        cdef uint64_t drop = self.plane.request_stays | self.trace_stays
        cdef bint has_body = PyBytes_GET_SIZE(self.body) > 0 or self.r.content_length >= 0
        if PyBytes_GET_SIZE(pool.key_line):
            drop |= HEADER_BIT(HEADER_AUTHORIZATION)
        write_request(out, self.head, &self.r, drop, pool.path_prefix, pool.host_line,
                      pool.key_line, self.request_id,
                      self.down.peer, self.plane.proto_line, self.trace_line,
                      PyBytes_GET_SIZE(self.body) if has_body else -1)
        self.up = up
        self.state = X_WAITING
        if self.sent_ns == 0:
            booking.sent(self, now_ns)
        self.sent_ns = now_ns
        up.send(self, out, self.body)
        self._set_deadline(now_ns)
        return 0

    cdef int on_broken(self, int failure) except -1:
        """The attempt came to nothing, or broke; its connection is closed already."""
        cdef uint64_t now = clock_ns()
        self.up = None
        if self.state == X_RELAYING and not self.holds:
            self.lease.end_failed(now, FAILURE_CUT)
            return self._cut(OUTCOME_UPSTREAM_ERROR, now)
        if again.elsewhere(self, failure, now):
            return 0
        if failure == FAILURE_STALE and again.resend(self, now):
            return 0
        return self._fail(failure, now)

    cdef int _fail(self, int failure, uint64_t now_ns) except -1:
        """No further attempt: the client gets the error."""
        self.lease.end_failed(now_ns, failure)
        self.held = None
        self.status = 0
        if failure == FAILURE_CONNECT_TIME or failure == FAILURE_TIMEOUT:
            return own.reply(self, 504, "upstream_timeout", "the replica did not answer in time",
                             None, 0, b"", False)
        return own.reply(self, 502, "upstream_error",
                         "the replica could not be reached or broke the connection", None, 0, b"",
                         False)

    # ---- the response

    cdef int on_head(self, bytes data, size_t size, response_head *a) except -1:
        cdef uint64_t now = clock_ns()
        cdef bint bodiless = self.is_head or a.status == 204 or a.status == 304
        cdef bint chunked = False
        cdef bint delimited = True
        self.status = a.status
        self.flags = a.flags
        self.state = X_RELAYING
        self.mode = RELAY_RAW
        self.reusable = (a.flags & HEAD_CLOSE == 0
                         and (a.minor == 1 or a.flags & HEAD_KEEP_ALIVE != 0))
        if bodiless:
            framing_start(&self.f, FRAMING_NONE, 0)
        elif a.flags & HEAD_CHUNKED:
            framing_start(&self.f, FRAMING_CHUNKED, 0)
            chunked = self.r.minor == 1
            if not chunked:
                self.mode, delimited = RELAY_DECHUNK, False
        elif a.content_length >= 0:
            framing_start(&self.f, FRAMING_LENGTH, a.content_length)
        else:
            framing_start(&self.f, FRAMING_CLOSE, 0)
            self.reusable = False
            chunked = self.r.minor == 1
            if chunked:
                self.mode = RELAY_ENCHUNK
            else:
                delimited = False
        if (self.strips_usage and self.r.minor == 1 and not bodiless and a.flags & HEAD_EVENTS
                and not a.flags & HEAD_ENCODED):
            self.mode = RELAY_WITHOUT_USAGE
            chunked = True
        self.closes = self.closes or not delimited or self.plane.leaving
        self.seen.start(a.flags & HEAD_EVENTS != 0, a.flags & HEAD_ENCODED != 0, a.status >= 500)
        write_response(self.plane.out, PyBytes_AS_STRING(data), size, a, chunked, self.closes)
        self._add_own_lines(self.plane.out)
        if self.kept_bytes > SENT_AT_ONCE_BYTES and self.up.has_unsent():
            self.reusable = False
        self.holds = self.plane.before_first_token
        if not self.holds:
            self._drop_body()
        if self.down.write_blocked:  # since before this attempt, which was not told
            self.on_write_blocked(True)
        return self._relay(data, size, now)

    cdef int on_body(self, bytes data, size_t at) except -1:
        return self._relay(data, at, clock_ns())

    cdef int _relay(self, bytes data, size_t at, uint64_t now_ns) except -1:
        """Pass bytes on as they came; follow the framing, and look at the body on the way."""
        cdef const char *start = PyBytes_AS_STRING(data)
        cdef size_t size = PyBytes_GET_SIZE(data)
        cdef size_t first = at
        cdef const char *payload
        cdef size_t n
        while at < size and not self.f.done and not self.f.bad:
            at += framing_next(&self.f, start + at, size - at, &payload, &n)
            if n:
                relay.watch(self, payload, n, now_ns)
        if self.holds:
            if self._hold(data, first, at, now_ns):
                return 0
        else:
            self._pass_on(data, first, at)
        if self.f.done:
            return self._complete(at < size, now_ns)
        if self.f.bad:
            self._let_go()
            return self.on_broken(FAILURE_RESET)
        self._set_deadline(now_ns)
        return 0

    cdef int _pass_on(self, bytes data, size_t start, size_t at) except -1:
        cdef Buffer out = self.plane.out
        cdef size_t size = PyBytes_GET_SIZE(data)
        if self.mode == RELAY_RAW and out.size == 0 and at - start == size:
            self.bytes_out += size
            return self.down.write(data)
        relay.render(self, data, start, at)
        self.bytes_out += out.size
        return self.down.write_out(out)

    # retry.before_first_token: a replica that dies or refuses before any content is as good as one
    # that was not reached

    cdef bint _hold(self, bytes data, size_t start, size_t at, uint64_t now_ns) except -1:
        """Keep the answer until its first content; True if that is not what the client gets."""
        cdef Upstream up
        cdef int failure
        relay.render(self, data, start, at)
        self.held = (self.held or b"") + self.plane.out.take()
        if self.f.bad:
            return False  # as if it had been reset
        failure = relay.early_failure(self)
        if failure == relay.STILL_UNKNOWN and PyBytes_GET_SIZE(self.held) <= MAX_HELD_BYTES:
            return False
        if failure >= 0:
            up, self.up = self.up, None
            if again.elsewhere(self, failure, now_ns):
                up.close()
                return True
            if self.retries and failure != FAILURE_OVERLOADED:  # both attempts died
                up.close()
                self._fail(failure, now_ns)
                return True
            self.up = up
        self.holds = False
        self._drop_body()
        self.bytes_out += PyBytes_GET_SIZE(self.held)
        self.down.write(self.held)
        self.held = None
        return False

    cdef int on_body_eof(self) except -1:
        """The replica has closed; whether that is the end is a matter of framing."""
        if self.f.kind == FRAMING_CLOSE:
            self.f.done = True
            if self.holds and self._hold(b"", 0, 0, clock_ns()):
                return 0
            if self.mode == RELAY_ENCHUNK:
                self.down.write(b"0\r\n\r\n")
            elif self.mode == RELAY_WITHOUT_USAGE:
                self._pass_on(b"", 0, 0)
            return self._complete(False, clock_ns())
        self._let_go()
        return self.on_broken(FAILURE_RESET)

    cdef int _complete(self, bint surplus, uint64_t now_ns) except -1:
        """The message is whole."""
        cdef Upstream up = self.up
        cdef int outcome
        self.up = None
        if up is not None:
            if self.reusable and not surplus:
                up.release(now_ns)
            else:
                up.close()
        self.seen.end()
        outcome = booking.judge(self, now_ns)
        self._end(outcome, self.status, now_ns)
        return self.down.next_request(self.closes)

    cdef int _cut(self, int outcome, uint64_t now_ns) except -1:
        """The replica failed after the head: an honest end where the framing allows one, else none.
        """
        cdef bytes last = relay.ending(self, outcome)
        if last is not None:
            self.down.write(last)
        self._end(outcome, self.status, now_ns)
        return self.down.cut() if last is None else self.down.next_request(self.closes)

    # ---- the client, and time

    cdef int on_client_gone(self) except -1:
        """Closing the replica's connection is the abort of its work."""
        cdef uint64_t now = clock_ns()
        if self.state == X_IDLE:
            return 0
        if self.state == X_QUEUED:
            self.plane.waiting_room.leave(self)
        self._let_go()
        self.lease.end_cancelled(now)
        return self._end(OUTCOME_CLIENT_CLOSED, self.status if self.status else 499, now)

    cdef int on_write_blocked(self, bint blocked) except -1:
        """Back-pressure: a client that does not read holds its replica up."""
        cdef uint64_t now = clock_ns()
        if not blocked or self.blocked_ns == 0:
            self.blocked_ns = now if blocked else 0
        if self.up is not None:
            if blocked:
                self.up.pause()
                self.lease.note_pause()
            else:
                self.up.resume()
                if self.state == X_RELAYING:
                    self.byte_ns = now
        if self.state == X_RELAYING:
            self._set_deadline(now)
        return 0

    cdef void _set_deadline(self, uint64_t now_ns):
        cdef uint64_t due = self.plane.deadline(self.began_ns, self.plane.request_ns)
        if self.blocked_ns:
            due = min(due, self.plane.deadline(self.blocked_ns, self.plane.write_ns))
        elif self.byte_ns == 0 or (self.seen.events and not self.seen.content):
            due = min(due, self.plane.deadline(self.sent_ns, self.plane.first_byte_ns))
            if self.byte_ns:
                due = min(due, self.plane.deadline(self.byte_ns, self.plane.idle_ns))
        else:
            due = min(due, self.plane.deadline(self.byte_ns, self.plane.idle_ns))
        self.plane.wheel.set(self.down, due)

    cdef int on_due(self, uint64_t now_ns) except -1:
        if self.state == X_BACKOFF:
            return self._attempt(now_ns)
        if self.state == X_QUEUED:
            self.plane.waiting_room.leave(self)
            return own.refuse_waiting(self, now_ns)
        if self.state == X_IDLE:
            return 0
        if self.blocked_ns and now_ns >= self.plane.deadline(self.blocked_ns, self.plane.write_ns):
            return self._write_stalled(now_ns)
        self._let_go()
        if self.state == X_RELAYING and not self.holds:
            self.lease.end_failed(now_ns, FAILURE_TIMEOUT)
            return self._cut(OUTCOME_TIMEOUT, now_ns)
        return self._fail(FAILURE_TIMEOUT, now_ns)

    cdef int _write_stalled(self, uint64_t now_ns) except -1:
        """A client that takes nothing for so long is gone; one that takes a little is slow."""
        cdef size_t unwritten = self.down.transport.get_write_buffer_size()
        if unwritten < self.down.unwritten:
            self.down.unwritten = unwritten
            self.blocked_ns = now_ns
            self._set_deadline(now_ns)
            return 0
        self.on_client_gone()
        self.down.transport.abort()
        return 0

    cdef void _let_go(self):
        cdef Upstream up = self.up
        self.up = None
        if up is not None:
            up.close()

    # ---- answers of our own

    cdef bytes text(self, uint64_t at, uint64_t size):
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.head) + at, size)

    cdef int _add_own_lines(self, Buffer out) except -1:
        """Lines that every response of a replica gets."""
        out.add(b"x-request-id: ", 14)
        out.add_bytes(self.request_id)
        out.add(b"\r\n", 2)
        out.add_bytes(self.up.pool.replica_line)
        if self.r.flags & HEAD_DEBUG:
            out.add_bytes(booking.decision_line(self))
        if self.r.origin.len:
            out.add_bytes(gate.cors_lines(self))
        return out.add(b"\r\n", 2)

    def refuse(self, int status, str code, str message, bint close=False, str param=None):
        """An error answer; also for a head that could not be read."""
        if self.state == X_IDLE:
            own.begin_unread(self)
        own.reply(self, status, code, message, param, 1 if status == 503 else 0, b"", close)

    def refuse_body(self):
        """The body, of unknown length, grows too long."""
        message = f"body above {self.plane.max_body_bytes} bytes"
        own.reply(self, 413, "body_too_large", message, None, 0, b"", True)

    def answer_page(self, int status, bytes content_type=b"", bytes body=b"", bytes extra=b""):
        """One of our own pages."""
        own.write(self, status, content_type, body, extra, False)
        self.state = X_IDLE
        self.down.next_request(self.closes)

    def answer_error(self, int status, str code, str message, str param=None):
        """An error on one of our own pages: no request of anybody's, so it is in no metric."""
        cdef bytes lines = b"x-headrace-error: " + code.encode() + b"\r\n"
        if status == 503:
            lines += b"retry-after: 1\r\n"
        body = replies.error_body(status, code, message, param)
        self.answer_page(status, b"application/json", body, lines)

    # ---- the end

    cdef void _drop_body(self):
        """Nobody will need the body again."""
        self.plane.block.self.buffered_bytes -= self.kept_bytes
        self.kept_bytes = 0
        self.body = None

    cdef int _end(self, int outcome, int status, uint64_t now_ns) except -1:
        """The only way out: books the request and leaves nothing behind."""
        if self.state == X_IDLE:
            return 0
        self.state = X_IDLE
        self.lease.end_cancelled(now_ns)  # does nothing where the lease has ended
        self._let_go()
        if self.kept_bytes:
            self._drop_body()
        booking.ended(self, outcome, status, now_ns)
        if self.routed:
            self.routed = False
            self.plane.block.self.requests -= 1
            if self.plane.queue_size:
                self.plane.waiting_room.wake_soon()
        self.head = self.body = self.held = None
        self.holds = False
        self.model = None
        return 0
