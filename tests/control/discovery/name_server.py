"""A name server on loopback UDP that answers what a test wrote into it."""

from __future__ import annotations

import asyncio

import dns.asyncresolver
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


class NameServer(asyncio.DatagramProtocol):
    """`records[name, kind] = (TTL, texts)`; `failing` kinds get SERVFAIL, `silent`: no answer."""

    def __init__(self):
        self.records = {}
        self.failing = set()
        self.silent = False
        self.asked = []

    async def start(self, stack, patch, module):
        """Listen, and make `module` ask here."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))
        stack.callback(transport.close)
        port = transport.get_extra_info("sockname")[1]

        def resolver():
            own = dns.asyncresolver.Resolver(configure=False)
            own.nameservers, own.port = ["127.0.0.1"], port
            return own

        patch.setattr(module, "new_resolver", resolver)

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        if self.silent:
            return
        query = dns.message.from_wire(data)
        (question,) = query.question
        name = question.name.to_text(omit_final_dot=True)
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        if kind in self.failing:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif (name, kind) in self.records:
            ttl, texts = self.records[name, kind]
            answer.answer.append(dns.rrset.from_text(question.name, ttl, "IN", kind, *texts))
        elif not any(known == name for known, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        self.transport.sendto(answer.to_wire(), address)
