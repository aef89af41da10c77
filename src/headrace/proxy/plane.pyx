import hashlib
import logging
import os
import resource

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from headrace import snapshot as snapshots
from headrace.core.balancer import POLICIES
from headrace.core.balancer cimport Balancer, RouteRequest
from headrace.core.fleet cimport atom_i64, fleet_block, series_add, series_key
from headrace.core.segment cimport Segment
from headrace.proxy.clock cimport now_ns as clock_ns
from headrace.proxy.head cimport (
    HEADER_AUTHORIZATION,
    HEADER_BIT,
    HEADER_DP_RANK,
    HEADER_X_API_KEY,
    head_add_name,
    head_names,
    hex_write,
)
from headrace.proxy.pool cimport Pool
from headrace.proxy.downstream cimport Downstream
from headrace.proxy.wheel cimport NEVER, Wheel
from headrace.proxy.wire cimport Buffer

from headrace.proxy.paths import EXACT, normalized
from headrace.proxy.queue import WaitingRoom
from headrace.tls import ClientTls

cdef extern from "hash.h" nogil:
    uint64_t hash_mix(uint64_t a, uint64_t b)

log = logging.getLogger("headrace.proxy")

RESERVED_DESCRIPTORS = 32  # segment, log, control of an embedded plane
WATCH_NS = 1_000_000_000  # how often paused sockets are asked whether their client is still there
# Policies that look at the prompt's prefix.
PREFIX_POLICIES = frozenset({"cost_aware", "cache_aware", "prefix_hash"})


def _ns(double seconds, bint zero_is_off=False):
    return NEVER if zero_is_off and seconds == 0 else <uint64_t>(seconds * 1e9)


cdef class Model:
    def __init__(self, info, bint on_demand):
        self.id = info.id
        self.name = info.name.encode()
        self.info = info
        self.on_demand = on_demand


cdef class Plane:
    def __init__(self, Segment segment not None, int index, loop):
        self.loop = loop
        self.segment = segment
        self.index = index
        self.block = fleet_block(segment.base, index)
        self.block.self.pid = os.getpid()
        self.wheel = Wheel(clock_ns())
        self.request = RouteRequest()
        self.out = Buffer()
        self.body = Buffer()
        self.pools = []
        self.upstream_tls = ClientTls()
        self.models = {}
        self.aliases = {}
        self.clients = set()
        self.watched = set()
        self.held_bodies = {}
        self.id_high = int.from_bytes(os.urandom(8), "little")
        self.id_count = int.from_bytes(os.urandom(8), "little")
        self.waiting_room = WaitingRoom(self)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # each client may need a connection to a replica beside its own
        self.max_clients = max((limit - RESERVED_DESCRIPTORS) // 2, 8)

    # ---- what control publishes

    def follow(self):
        """Take up the snapshot in force if it is a new one; True if there is one at all."""
        if self.segment.blob_generation != self.blob_seen:
            found = self.segment.blob()
            if found is not None:
                generation, blob = found
                self.apply(snapshots.decode(blob))
                self.blob_seen = generation
                self.block.self.blob_seen = generation
        return self.blob_seen != 0

    def apply(self, snapshot):
        self.snapshot = snapshot
        config = snapshot.config
        if config != self.config:
            self.config = config
            self._apply_limits(config)
            self._apply_access(config)
            self._apply_names(config)
        self._apply_replicas(snapshot)
        self._apply_models(snapshot)

    def _apply_limits(self, config):
        server, times, admission = config.server, config.timeouts, config.admission
        self.max_body_bytes = server.max_body_bytes
        self.max_header_bytes = server.max_header_bytes
        self.max_buffered_bytes = server.max_buffered_bytes
        self.connect_ns = _ns(times.connect_s)
        self.first_byte_ns = _ns(times.first_byte_s, True)
        self.idle_ns = _ns(times.idle_s, True)
        self.request_ns = _ns(times.request_s, True)
        self.write_ns = _ns(times.write_s, True)
        self.client_header_ns = _ns(times.client_header_s)
        self.client_body_ns = _ns(times.client_body_s)
        self.keepalive_ns = _ns(times.keepalive_s)
        self.upstream_idle_ns = _ns(times.upstream_idle_s)
        self.queue_timeout_ns = _ns(admission.queue_timeout_s)
        self.queue_size = admission.queue_size
        self.hold_size = config.autoscale.hold_size
        self.hold_timeout_ns = _ns(config.autoscale.hold_timeout_s)
        self.max_concurrent_requests = admission.max_concurrent_requests
        self.max_retries = config.retry.max_retries
        self.before_first_token = config.retry.before_first_token
        self.inject_usage = config.observability.inject_usage
        self.traces = config.observability.otlp_endpoint is not None
        self.log_requests = bool(config.observability.access_log
                                 or config.observability.otlp_endpoint)
        self.policy = POLICIES.index(config.routing.policy)
        self.needs_prefix = config.routing.policy in PREFIX_POLICIES
        settings = {}
        for section in (config.routing, config.admission, config.retry):
            settings.update({name: getattr(section, name) for name in section.__struct_fields__})
        if self.balancer is None:
            self.balancer = Balancer(self.segment, self.index, settings)
        else:
            self.balancer.configure(settings)

    def _apply_access(self, config):
        self.keys = frozenset(hashlib.sha256(key.encode()).digest() for key in config.auth.api_keys)
        self.open_access = not self.keys
        self.request_stays = 0 if config.server.pass_dp_rank else HEADER_BIT(HEADER_DP_RANK)
        if self.keys:
            self.request_stays |= HEADER_BIT(HEADER_AUTHORIZATION) | HEADER_BIT(HEADER_X_API_KEY)
        self.origins = frozenset(origin.encode() for origin in config.server.cors_origins)
        self.any_origin = b"*" in self.origins
        self.blocked = tuple(normalized(path.encode()) for path in config.server.blocked_paths)
        self.routes = {path: found for path, found in EXACT.items() if path not in self.blocked}
        self.proto_line = b"\r\nx-forwarded-proto: " + (b"https" if config.server.tls_cert
                                                        else b"http")

    def _apply_names(self, config):
        memset(&self.request_id_names, 0, sizeof(head_names))
        memset(&self.session_names, 0, sizeof(head_names))
        for name in config.server.request_id_headers:
            head_add_name(&self.request_id_names, name.encode(), len(name))
        for name in config.routing.session_headers:
            head_add_name(&self.session_names, name.encode(), len(name))

    def _apply_replicas(self, snapshot):
        cdef Pool pool
        tls = None
        if any(info.url.startswith("https") for info in snapshot.replicas):
            tls = self.upstream_tls.context(snapshot.config.server.upstream_tls)
        cut = {tuple(pair) for pair in snapshot.cut}
        before, self.pools = self.pools, [None] * (max((r.slot for r in snapshot.replicas),
                                                       default=-1) + 1)
        for info in snapshot.replicas:
            pool = before[info.slot] if info.slot < len(before) else None
            if pool is None or pool.info != info or (pool.tls is not None
                                                     and pool.tls is not tls):
                pool = Pool(self, info, tls)
            self.pools[info.slot] = pool
        for pool in before:
            if pool is not None and (pool.slot >= len(self.pools)
                                     or self.pools[pool.slot] is not pool):
                pool.close((pool.slot, pool.info.generation) in cut)

    def _apply_models(self, snapshot):
        known = {model.id for model in snapshot.models}
        for model in self.models.values():
            if model.id not in known:
                self.balancer.books.clear_model(model.id)
        on_demand = snapshot.config.autoscale.on_demand
        self.models = {model.name.encode(): Model(model, model.name in on_demand)
                       for model in snapshot.models}
        for info in snapshot.replicas:
            self.balancer.books.set_replica(info.slot, info.id)
        for model in snapshot.models:
            self.balancer.books.set_model(model.id, model.group, model.slots, model.pairs)
        aliases = snapshot.config.routing.model_aliases
        self.aliases = {a.encode(): self.models.get(b.encode()) for a, b in aliases.items()}
        self.only_model = next(iter(self.models.values())) if len(self.models) == 1 else None

    # ---- every tick

    def tick(self):
        """Deadlines, paused sockets and the configuration; called each 50 ms."""
        cdef uint64_t now = clock_ns()
        cdef Downstream client
        self.block.self.beat_ns = now
        self.follow()
        if self.balancer is not None:
            self.balancer.tick(now)
        self.wheel.advance(now)
        self.waiting_room.wake()
        self._resume_bodies()
        if self.watched and now - self.watched_ns > WATCH_NS:
            self.watched_ns = now
            for client in list(self.watched):
                if client.reading_paused:
                    client.poll()
                else:
                    self.watched.discard(client)

    def _resume_bodies(self):
        """Let held bodies go on; when there is no room, one of them still may, or all would wait
        for each other.
        """
        while self.held_bodies:
            client = next(iter(self.held_bodies))
            del self.held_bodies[client]
            client.resume_body()
            if self.is_over_buffered():
                break

    # ---- clients

    def client_came(self, Downstream client):
        self.clients.add(client)
        self.block.self.connections += 1
        self.block.self.accepted += 1
        if self.accepting is not None and len(self.clients) >= self.max_clients:
            self.accepting(False)

    def client_left(self, Downstream client):
        self.clients.discard(client)
        self.watched.discard(client)
        self.held_bodies.pop(client, None)
        self.block.self.connections -= 1
        if self.accepting is not None and len(self.clients) < self.max_clients:
            self.accepting(True)

    def watch(self, Downstream client):
        """Its reading is paused: look after it."""
        self.watched.add(client)

    def is_live(self, model):
        """Whether a replica that serves it takes requests."""
        for slot in model.slots:
            row = self.segment.row(slot)
            if row is not None and row["eligible"]:
                return True
        return False

    def may_wait(self):
        """Whether the waiting room has a place, over all processes."""
        return self._count_waiting("queued") - self._count_waiting("held") < self.queue_size

    def may_hold(self, int64_t body_bytes):
        """Whether a request may wait for a replica to come up; such bodies take at most half of the
        room that all bodies have here.
        """
        return (self._count_waiting("held") < self.hold_size
                and self.held_bytes + body_bytes <= self.max_buffered_bytes // 2)

    def _count_waiting(self, gauge):
        return sum(self.segment.process(i)[gauge] for i in range(self.segment.processes))

    def is_over_buffered(self):
        return self.block.self.buffered_bytes > self.max_buffered_bytes

    def hold_body(self, Downstream client):
        self.held_bodies[client] = None

    def free_descriptors(self):
        """None are left: connections that only wait give theirs back."""
        for pool in self.pools:
            if pool is not None:
                pool.close_idle()

    def leave(self):
        """Every connection ends with its next answer: an idle one that is closed here could cross
        with a request.
        """
        self.leaving = True

    def stop(self):
        """No new requests: idle clients go, the others close after their answer."""
        cdef Downstream client
        self.leaving = self.stopping = True
        self.block.self.draining = 1
        for client in list(self.clients):
            client.stop()

    def busy(self):
        """Clients whose request has not ended."""
        cdef Downstream client
        return sum(1 for client in self.clients if client.phase in (1, 2))

    def close(self):
        """Cut whatever is left."""
        cdef Downstream client
        for client in list(self.clients):
            if client.transport is not None:
                client.transport.abort()
        for pool in self.pools:
            if pool is not None:
                pool.close(True)

    # ---- small services

    cdef bytes new_request_id(self):
        cdef char text[32]
        self.id_count += 1
        hex_write(self.id_high, text)
        hex_write(hash_mix(self.id_count, self.id_high), text + 16)
        return PyBytes_FromStringAndSize(text, 32)

    cdef uint64_t random(self) noexcept:
        """Unlike any other process's; never 0."""
        self.id_count += 1
        return hash_mix(self.id_count, self.id_high) | 1

    cdef bint allows(self, bytes key):
        """Whether it is a gateway key; looked up by its hash, so that the time tells nothing of the
        keys.
        """
        return hashlib.sha256(key).digest() in self.keys

    cdef bint is_full(self) noexcept:
        """Whether the gateway holds admission.max_concurrent_requests already, over all processes.
        """
        cdef int64_t total = 0
        cdef uint32_t p
        if self.max_concurrent_requests == 0:
            return False
        for p in range(self.segment.base.processes):
            total += atom_i64(&fleet_block(self.segment.base, p).self.requests)
        return total >= self.max_concurrent_requests

    cdef void count(self, int kind, int a, int b, int c, int d) noexcept:
        series_add(self.block.series, series_key(kind, a, b, c, d), 1)

    cdef uint64_t deadline(self, uint64_t now_ns, uint64_t after_ns) noexcept:
        return NEVER if after_ns == NEVER else now_ns + after_ns
