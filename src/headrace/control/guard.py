"""Who may use the admin port, and which addresses it may be told to talk to.

A page in somebody's browser can send requests to an admin port on that machine or network. Such a
request carries an Origin, so a state-changing one is served only if its Origin is the very host it
was sent to, and that host is no name that a stranger's DNS could point here.

A registered replica makes the gateway send requests to its address, also from where the caller
could not. Link-local addresses, where clouds serve credentials, are never accepted.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import socket
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from headrace.errors import ClientError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Metadata services outside the link-local networks: AWS over IPv6, Alibaba, Oracle.
METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")))
RESOLVE_TIMEOUT_S = 5.0


class Forbidden(ClientError):
    """The request is understood and not allowed."""

    status = 403
    code = "forbidden"


def holds_key(headers: Mapping[str, str], key: str) -> bool:
    """True if the headers carry the admin key: Bearer, x-api-key, or as password of HTTP Basic."""
    given = headers.get("x-api-key", "")
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        given = rest.strip()
    elif scheme.lower() == "basic":
        try:
            given = base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            given = ""
    return hmac.compare_digest(given.encode(), key.encode())


def check_origin(headers: Mapping[str, str], admin_host: str, has_key: bool) -> None:
    """Raise Forbidden for a state-changing call of a browser page from elsewhere.

    With a key a stranger's name that points here does no harm: the page does not have the key.
    """
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("a page of another origin may not change anything here")
    origin = headers.get("origin")
    if origin is None:
        return
    host = headers.get("host", "")
    if urlsplit(origin).netloc.lower() != host.lower() or not host:
        raise Forbidden(f"Origin {origin[:200]!r} may not change anything here")
    if not has_key and not is_unforgeable(host, admin_host):
        raise Forbidden(f"without an admin key pages must call by address, not by {host[:200]!r}")


def is_unforgeable(host: str, admin_host: str) -> bool:
    """True for an address, localhost or the configured host: names no stranger can point here."""
    name = (urlsplit(f"//{host}").hostname or "").lower()
    if name in ("localhost", admin_host.lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def check_urls(urls: Iterable[str | None], networks: Sequence[str] | None) -> None:
    """Raise Forbidden if a URL leads where a registered replica must not be; None is skipped.

    Every address of a name counts. `networks` is the allow-list; without one all but link-local
    and metadata addresses are fine.
    """
    allowed = None if networks is None else [ipaddress.ip_network(one) for one in networks]
    for url in urls:
        if url is not None:
            for address in await resolve(urlsplit(url).hostname or ""):
                reason = refusal(address, allowed)
                if reason:
                    raise Forbidden(f"{url}: {address} {reason}", param="url")


async def resolve(host: str) -> list[Address]:
    """Return the addresses of a host; raises ClientError if there are none."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        raise ClientError(f"cannot resolve {host!r}", param="url") from None
    return [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in found]


def refusal(
    address: Address, allowed: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network] | None
) -> str:
    """Return why an address is refused, or nothing."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_link_local or address in METADATA:
        return "is where clouds keep credentials"
    if address.is_multicast or address.is_unspecified:
        return "is no host"
    if allowed is not None and not any(address in one for one in allowed):
        return "is in none of auth.replica_networks"
    return ""
