from urllib.parse import urlsplit

from headrace.core.fleet cimport FAILURE_RESET
from headrace.proxy.plane cimport Plane
from headrace.proxy.upstream cimport Upstream


cdef class Pool:
    def __init__(self, Plane plane, info, tls):
        self.plane = plane
        self.slot = info.slot
        self.info = info
        url = urlsplit(info.url)
        self.host = url.hostname
        self.port = url.port or (443 if url.scheme == "https" else 80)
        self.tls = tls if url.scheme == "https" else None
        self.path_prefix = url.path.rstrip("/").encode()
        name = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        shown = f"{name}:{url.port}" if url.port is not None else name
        self.host_line = f" HTTP/1.1\r\nhost: {shown}\r\n".encode()
        self.key_line = b""
        if info.api_key:
            self.key_line = f"authorization: Bearer {info.api_key}\r\n".encode()
        self.replica_line = f"x-headrace-replica: {info.id}\r\n".encode()
        self.idle = []
        self.open = set()

    cdef Upstream take(self):
        """The idle connection that was used last (the others may age and go), or None."""
        cdef Upstream up
        while self.idle:
            up = <Upstream>self.idle.pop()
            if up.is_usable():
                return up
        return None

    cdef void give_back(self, Upstream up):
        if self.closed:
            up.close()
        else:
            self.idle.append(up)

    cdef void forget(self, Upstream up):
        self.open.discard(up)
        if up in self.idle:
            self.idle.remove(up)

    def close(self, bint now):
        """No connection is kept any longer; `now`: those in use are cut too."""
        cdef Upstream up
        self.closed = True
        for up in list(self.open):
            if up.exchange is None:
                up.close()
            elif now:
                up._broke(FAILURE_RESET)
        self.idle.clear()

    def close_idle(self):
        """Give the descriptors of waiting connections back."""
        cdef Upstream up
        for up in list(self.idle):
            up.close()

    @property
    def connections(self):
        return len(self.open)
