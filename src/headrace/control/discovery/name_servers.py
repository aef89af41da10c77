"""Questions to the system's name servers, whose answers carry a TTL; by dnspython."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver
    from dns.resolver import Answer

LOOKUP_TIMEOUT_S = 5.0
UNWEIGHTED = 0.01  # of the heaviest record: RFC 2782 wants weight 0 chosen now and then


class LookupFailed(Exception):
    """No answer, or none with addresses."""


class Target(NamedTuple):
    """Where an engine listens, and its weight beside the others of its name."""

    host: str
    port: int
    weight: float = 1.0


class Record(NamedTuple):
    """What counts of an SRV record."""

    host: str
    port: int
    priority: int
    weight: int


def new_resolver() -> Resolver:
    """A resolver for the name servers of the system as they are at the moment."""
    import dns.asyncresolver

    return dns.asyncresolver.Resolver()


def is_installed() -> bool:
    return importlib.util.find_spec("dns") is not None


async def addresses(name: str) -> tuple[list[str], float] | None:
    """Return all A and AAAA records of a name and their shortest TTL in seconds.

    None: the name servers know no such name, or cannot be asked. Raises LookupFailed: one of the
    two answers is missing, and half of the addresses would pass for all of them.
    """
    if not is_installed():
        return None
    answers = await asyncio.gather(ask(name, "A"), ask(name, "AAAA"))
    known = [answer for answer in answers if answer is not None]
    if not known:
        return None
    found = [str(record.address) for answer in known for record in answer]
    return found, min(ttl_s(answer) for answer in known)


async def services(name: str) -> tuple[list[Target], float]:
    """Return the targets of a name's SRV records, sorted, and their TTL in seconds.

    Raises LookupFailed, also without dnspython.
    """
    if not is_installed():
        raise LookupFailed("SRV records need dnspython: pip install 'headrace[dns]'")
    answer = await ask(name, "SRV")
    records = [] if answer is None else [to_record(one) for one in answer]
    targets = weighed([record for record in records if record.host])
    if answer is None or not targets:
        raise LookupFailed("no SRV records")
    return targets, ttl_s(answer)


def to_record(found: object) -> Record:
    """One record; its host is empty where it says that there is no such service (RFC 2782)."""
    host = str(found.target).rstrip(".")  # type: ignore[attr-defined]
    return Record(host, found.port, found.priority, found.weight)  # type: ignore[attr-defined]


def weighed(records: Iterable[Record]) -> list[Target]:
    """Weights as the router takes them: relative to the heaviest record of the first priority.

    A record of a later priority gets weight 0: it serves if nobody else can.
    """
    by_place: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=lambda r: (r.priority, -r.weight)):
        by_place.setdefault((record.host, record.port), record)
    if not by_place:
        return []
    first = min(record.priority for record in by_place.values())
    heaviest = max(record.weight for record in by_place.values() if record.priority == first)

    def weight(record: Record) -> float:
        if record.priority != first:
            return 0.0
        return (record.weight or heaviest * UNWEIGHTED) / heaviest if heaviest else 1.0

    return sorted(Target(*place, weight(record)) for place, record in by_place.items())


def ttl_s(answer: Answer) -> float:
    """How long an answer holds, in seconds."""
    return float(answer.rrset.ttl) if answer.rrset else 0.0


async def ask(name: str, kind: str) -> Answer | None:
    """Return the records of one kind, None if there are none; raises LookupFailed."""
    import dns.exception
    import dns.resolver

    try:
        return await new_resolver().resolve(name, kind, lifetime=LOOKUP_TIMEOUT_S, search=True)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer, dns.resolver.NoResolverConfiguration):
        return None
    except (dns.exception.DNSException, OSError) as error:
        raise LookupFailed(str(error)) from None
