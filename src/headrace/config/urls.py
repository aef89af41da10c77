"""Replica URLs: what is accepted, their one spelling, and the id that follows from it."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?\Z")
_PATH = re.compile(r"[A-Za-z0-9/._~!$&'()*+,;=:@%-]*\Z")


def normalize(url: str) -> str:
    """The one spelling of a replica's URL: lower case host, no default port, no trailing slash.

    Raises:
        ValueError: with the reason, for anything but `http(s)://HOST[:PORT][/PATH]`.
    """
    parts, port = _split(url)
    host = _host(parts)
    suffix = "" if port == DEFAULT_PORTS[parts.scheme] else f":{port}"
    return f"{parts.scheme}://{host}{suffix}{parts.path.rstrip('/')}"


def replica_id(url: str) -> str:
    """`HOST:PORT` plus the path of a URL that `normalize` accepts; IPv6 hosts keep their brackets.

    Raises:
        ValueError: as `normalize`.
    """
    parts, port = _split(url)
    return f"{_host(parts)}:{port}{parts.path.rstrip('/')}"


def _split(url: str) -> tuple[SplitResult, int]:
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("only printable ASCII without spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(_reason(error)) from None
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError("must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user or password in a URL; use api_key")
    if "?" in url or "#" in url:
        raise ValueError("no query and no fragment in the URL of a replica")
    if not parts.hostname:
        raise ValueError("no host")
    if not _PATH.match(parts.path):
        raise ValueError("bad character in the path")
    if port == 0:
        raise ValueError("port 0 is none; use 1 to 65535")
    return parts, DEFAULT_PORTS[parts.scheme] if port is None else port


def _reason(error: ValueError) -> str:
    return "port must be 1 to 65535" if "ort" in str(error) else "bad IPv6 address"


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if parts.netloc.startswith("["):
        try:
            return f"[{ipaddress.IPv6Address(host).compressed}]"
        except ValueError:
            raise ValueError("bad IPv6 address") from None
    if not _HOST.match(host):
        raise ValueError("bad host name")
    return host.lower()


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
