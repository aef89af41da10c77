"""Replicas behind a name: each of its addresses is one.

With dnspython (`pip install headrace[dns]`) the name servers are asked, and the TTL of their answer
shortens the interval. What stands in /etc/hosts, and what they do not know, is asked of the
system's resolver, which tells no TTL; so is everything without that package. SRV records (a name
that begins with `_`) bring ports and weights, and need it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from headrace.config import DnsName, ReplicaConfig, parse_replicas
from headrace.control.discovery import name_servers
from headrace.control.discovery.name_servers import LookupFailed, Target
from headrace.errors import ConfigError

log = logging.getLogger("headrace.discovery")

DEFAULT_PORT = 8000  # where vLLM listens
MIN_INTERVAL_S = 1.0
RETRY_S = 5.0  # after a failed look-up, if the interval is longer
HOSTS_FILE = Path("/etc/hosts")


async def follow(entry: DnsName, publish: Callable[[Sequence[ReplicaConfig]], None]) -> None:
    """Publish the addresses of a name again and again; a failed look-up changes nothing."""
    while True:
        interval_s = entry.interval_s
        try:
            targets, ttl_s = await look_up(entry)
            publish(parse_replicas([{"url": url_of(t), "weight": t.weight} for t in targets]))
            if ttl_s is not None:
                interval_s = min(interval_s, ttl_s)
        except (LookupFailed, ConfigError) as error:
            log.warning("%s: the last good addresses stay in force: %s", entry.name, error)
            interval_s = min(interval_s, RETRY_S)
        await asyncio.sleep(max(MIN_INTERVAL_S, interval_s))


async def look_up(entry: DnsName) -> tuple[list[Target], float | None]:
    """Return the targets of a name, sorted, and their TTL in seconds if it is known.

    Raises LookupFailed.
    """
    if entry.name.startswith("_"):
        targets, ttl_s = await name_servers.services(entry.name)
        return targets, ttl_s
    port = entry.port or DEFAULT_PORT
    found, ttl = await addresses(entry.name)
    return [Target(host, port) for host in sorted_addresses(found)], ttl


async def addresses(name: str) -> tuple[Iterable[str], float | None]:
    """Return the addresses of a name and their TTL if it is known; raises LookupFailed."""
    if not is_in_hosts_file(name):
        answer = await name_servers.addresses(name)
        if answer is not None:
            return answer
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(name_servers.LOOKUP_TIMEOUT_S):
            found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        raise LookupFailed(f"cannot resolve: {error or 'no answer in time'}") from None
    return [str(address[0]) for *_, address in found], None


def is_in_hosts_file(name: str) -> bool:
    """Whether the system has the name's addresses in its own file, which precedes DNS."""
    text = ""
    with contextlib.suppress(OSError):
        text = HOSTS_FILE.read_text(errors="replace")
    names = (line.partition("#")[0].split()[1:] for line in text.splitlines())
    return any(name.lower() in map(str.lower, own) for own in names)


def sorted_addresses(found: Iterable[str]) -> list[str]:
    """Return each address once, IPv4 before IPv6; the order of a DNS answer means nothing."""
    known = {ipaddress.ip_address(one.partition("%")[0]) for one in found}
    return [str(one) for one in sorted(known, key=lambda a: (a.version, int(a)))]


def url_of(target: Target) -> str:
    """The URL of an engine at an address."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"http://{host}:{target.port}"
