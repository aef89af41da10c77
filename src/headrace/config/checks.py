"""What single values must look like beyond their type: each says why not, or None."""

from __future__ import annotations

import ipaddress
import re

from headrace.config.urls import normalize

MAX_REASON_CHARS = 200
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_WORKLOAD = re.compile(r"(statefulset|deployment)/[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")
_ORIGIN = re.compile(r"(\*|https?://[^/\s]+)\Z")


def replica_url(text: str) -> str | None:
    """`http(s)://HOST[:PORT][/PATH]`."""
    try:
        normalize(text)
    except ValueError as error:
        return str(error)
    return None


def page_url(text: str) -> str | None:
    """As a replica's URL, and a query is welcome."""
    return replica_url(text.partition("?")[0])


def secret_key(text: str) -> str | None:
    """A key must fit into a header."""
    fits = text.isascii() and text.isprintable() and " " not in text
    return None if fits else "a key is printable ASCII without spaces"


def header_name(text: str) -> str | None:
    """A token of RFC 9110."""
    return None if _TOKEN.match(text) else "is no header name"


def path(text: str) -> str | None:
    """A path of a URL."""
    return None if text.startswith("/") else "must begin with /"


def workload(text: str) -> str | None:
    """A workload of Kubernetes that can be scaled."""
    fits = _WORKLOAD.match(text)
    return None if fits else "must be statefulset/NAME or deployment/NAME"


def reason(text: str) -> str | None:
    """One line for people."""
    fits = text.isprintable() and len(text) <= MAX_REASON_CHARS
    return None if fits else f"must be one line of at most {MAX_REASON_CHARS} characters"


def one_line(text: str) -> str:
    """The text with a space for every character that `reason` refuses."""
    return "".join(c if c.isprintable() else " " for c in text)


def origin(text: str) -> str | None:
    """The value of an Origin header, or `*`."""
    return None if _ORIGIN.match(text) else "must be * or http(s)://HOST[:PORT]"


def network(text: str) -> str | None:
    """An IPv4 or IPv6 network such as 10.0.0.0/8."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return "must be a network such as 10.0.0.0/8"
    return None


def host(text: str) -> str | None:
    """A name or an address; brackets belong to URLs only."""
    return "must be a name or an address" if re.search(r"[\s/\[\]]", text) else None
