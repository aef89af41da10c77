"""TLS contexts from certificate files, and whether the files have changed since."""

from __future__ import annotations

import logging
import os
import ssl
from typing import Protocol

log = logging.getLogger("headrace.tls")

Stamp = tuple[object, ...]


class Upstream(Protocol):
    """`server.upstream_tls`."""

    @property
    def ca(self) -> str | None: ...
    @property
    def cert(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def insecure(self) -> bool: ...


def load_pair(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    """Load a certificate chain and its key; raises OSError, also where the two do not fit.

    An encrypted key fails: OpenSSL would ask for its password on the terminal.
    """
    context.load_cert_chain(cert, key, password="")


def server_context(cert: str, key: str | None) -> ssl.SSLContext:
    """A context for the data port; raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, cert, key)
    return context


def client_context(settings: Upstream) -> ssl.SSLContext:
    """A context for `https` replicas; raises OSError."""
    context = ssl.create_default_context(cafile=settings.ca)
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert:
        load_pair(context, settings.cert, settings.key)
    return context


def stamp(*paths: str | None) -> Stamp:
    """What changes when a file is written or replaced."""
    found: list[object] = []
    for path in paths:
        try:
            status = os.stat(path) if path is not None else None
        except OSError:
            status = None
        found.append(status and (status.st_mtime_ns, status.st_ino, status.st_size))
    return (*paths, *found)


class ServerTls:
    """The context of the data port, whose certificate can be exchanged while it is in use."""

    def __init__(self, cert: str, key: str | None) -> None:
        self._stamp = stamp(cert, key)
        self.context = server_context(cert, key)

    def renew(self, cert: str | None, key: str | None) -> None:
        """Take changed files for the handshakes to come; bad ones leave everything as it is."""
        now = stamp(cert, key)
        if cert is None or now == self._stamp:
            return
        self._stamp = now
        try:
            server_context(cert, key)  # half a pair loaded into the real one would break it
            load_pair(self.context, cert, key)
            log.info("certificate %s in force", cert)
        except OSError as error:
            log.error("the last good certificate stays in force: %s: %s", cert, error)


class ClientTls:
    """The context for replicas: the same object while settings and files are the same."""

    def __init__(self) -> None:
        self._stamp: Stamp | None = None
        self._context: ssl.SSLContext | None = None

    def context(self, settings: Upstream) -> ssl.SSLContext:
        """The context in force; files that cannot be used leave the last good one in place."""
        now = (stamp(settings.ca, settings.cert, settings.key), settings.insecure)
        if self._context is None or now != self._stamp:
            self._stamp = now
            try:
                self._context = client_context(settings)
            except OSError as error:
                log.error("server.upstream_tls: the last good files stay in force: %s", error)
                if self._context is None:
                    self._context = ssl.create_default_context()  # verifies, so it fails closed
        return self._context
