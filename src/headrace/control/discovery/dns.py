"""Replicas behind a name: each of its addresses is one.

A and AAAA records are asked of the system's resolver, which knows /etc/hosts and the search list
but no TTL, so they are looked up every `interval_s`. SRV records (a name that begins with `_`)
are asked of the name servers; they bring their ports, and a TTL that shortens the interval.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable, Sequence

from headrace.config import DnsName, ReplicaConfig, parse_replicas
from headrace.errors import ConfigError

log = logging.getLogger("headrace.discovery")

DEFAULT_PORT = 8000  # where vLLM listens
MIN_INTERVAL_S = 1.0
LOOKUP_TIMEOUT_S = 5.0


class LookupFailed(Exception):
    """No answer, or none with addresses."""


async def follow(entry: DnsName, publish: Callable[[Sequence[ReplicaConfig]], None]) -> None:
    """Publish the addresses of a name again and again; a failed look-up changes nothing."""
    while True:
        interval_s = entry.interval_s
        try:
            targets, ttl_s = await look_up(entry)
            publish(parse_replicas([url_of(host, port) for host, port in targets]))
            if ttl_s is not None:
                interval_s = min(interval_s, ttl_s)
        except (LookupFailed, ConfigError) as error:
            log.warning("%s: the last good addresses stay in force: %s", entry.name, error)
        await asyncio.sleep(max(MIN_INTERVAL_S, interval_s))


async def look_up(entry: DnsName) -> tuple[list[tuple[str, int]], float | None]:
    """Return the (host, port) pairs of a name, sorted, and their TTL in seconds if it is known.

    Raises LookupFailed.
    """
    if entry.name.startswith("_"):
        return await look_up_services(entry.name)
    port = entry.port or DEFAULT_PORT
    return [(host, port) for host in await addresses(entry.name)], None


async def addresses(name: str) -> list[str]:
    """Return the addresses of a name, sorted; raises LookupFailed."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOKUP_TIMEOUT_S):
            found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        raise LookupFailed(f"cannot resolve: {error or 'no answer in time'}") from None
    return sorted_addresses(str(address[0]) for *_, address in found)


def sorted_addresses(found: Iterable[str]) -> list[str]:
    """Return each address once, IPv4 before IPv6; the order of a DNS answer means nothing."""
    known = {ipaddress.ip_address(one.partition("%")[0]) for one in found}
    return [str(one) for one in sorted(known, key=lambda a: (a.version, int(a)))]


async def look_up_services(name: str) -> tuple[list[tuple[str, int]], float]:
    """Return the targets of SRV records by priority, and their TTL; raises LookupFailed.

    Needs the package dnspython (`pip install headrace[dns]`).
    """
    try:
        import dns.asyncresolver
        import dns.exception
    except ImportError:
        raise LookupFailed("SRV records need dnspython: pip install 'headrace[dns]'") from None
    try:
        answer = await dns.asyncresolver.resolve(name, "SRV", lifetime=LOOKUP_TIMEOUT_S)
    except dns.exception.DNSException as error:
        raise LookupFailed(str(error)) from None
    targets = {(str(record.target).rstrip("."), int(record.port)) for record in answer}
    if not targets:
        raise LookupFailed("no SRV records")
    return sorted(targets), float(answer.rrset.ttl) if answer.rrset else MIN_INTERVAL_S


def url_of(host: str, port: int) -> str:
    """The URL of an engine at an address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
