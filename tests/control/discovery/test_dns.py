import asyncio
import contextlib
from pathlib import Path

import pytest
from gateway_loop import Engine, Gateway
from hypothesis import given
from hypothesis import strategies as st
from name_server import NameServer

from headrace.config import DnsName
from headrace.control.discovery import dns, name_servers
from headrace.control.discovery.name_servers import Record, Target

CHECKS = 2  # connections for health and metrics: they end by themselves within seconds
NAME, SERVICE = "engines.test", "_http._tcp.engines.test"


def asked(scenario, monkeypatch):
    """Run `scenario(stack, server)` with a name server that is asked by this process."""

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            server = NameServer()
            await server.start(stack, monkeypatch, name_servers)
            async with asyncio.timeout(10):
                await scenario(stack, server)

    asyncio.run(main())


def test_addresses_of_both_families_come_with_the_shorter_ttl(monkeypatch):
    async def scenario(stack, server):
        server.records[NAME, "A"] = 60, ["10.0.0.2", "10.0.0.10"]
        server.records[NAME, "AAAA"] = 20, ["fd00::1"]
        targets, ttl_s = await dns.look_up(DnsName(name=NAME, port=9))
        assert targets == [Target("10.0.0.2", 9), Target("10.0.0.10", 9), Target("fd00::1", 9)]
        assert ttl_s == 20
        del server.records[NAME, "AAAA"]
        assert await dns.look_up(DnsName(name=NAME)) == (
            [Target("10.0.0.2", 8000), Target("10.0.0.10", 8000)],
            60,
        )

    asked(scenario, monkeypatch)


def test_half_an_answer_is_none(monkeypatch):
    async def scenario(stack, server):
        server.records[NAME, "A"] = 60, ["10.0.0.2"]
        server.failing = {"AAAA"}
        with pytest.raises(dns.LookupFailed):
            await dns.look_up(DnsName(name=NAME))

    asked(scenario, monkeypatch)


def test_services_bring_ports_weights_and_reserves(monkeypatch):
    async def scenario(stack, server):
        server.records[SERVICE, "SRV"] = (
            30,
            [
                "0 20 8001 a.test.",
                "0 10 8002 b.test.",
                "0 0 8003 c.test.",
                "10 50 8004 reserve.test.",
                "20 50 8001 a.test.",
            ],
        )
        targets, ttl_s = await dns.look_up(DnsName(name=SERVICE))
        assert ttl_s == 30
        assert targets == [
            Target("a.test", 8001, 1.0),
            Target("b.test", 8002, 0.5),
            Target("c.test", 8003, 0.01),
            Target("reserve.test", 8004, 0.0),
        ]

    asked(scenario, monkeypatch)


@pytest.mark.parametrize("records", [None, ["0 0 0 ."]])
def test_a_service_that_is_not_there_is_a_failed_look_up(monkeypatch, records):
    async def scenario(stack, server):
        if records:
            server.records[SERVICE, "SRV"] = 30, records
        with pytest.raises(dns.LookupFailed):
            await dns.look_up(DnsName(name=SERVICE))

    asked(scenario, monkeypatch)


RECORDS = st.lists(
    st.builds(
        Record,
        host=st.sampled_from(["a", "b", "c"]),
        port=st.integers(1, 2),
        priority=st.integers(0, 2),
        weight=st.integers(0, 9),
    )
)


@given(RECORDS)
def test_weights_keep_the_order_of_the_records_and_later_priorities_wait(records):
    found = name_servers.weighed(records)
    assert [t[:2] for t in found] == sorted({(r.host, r.port) for r in records})
    first = min((r.priority for r in records), default=0)
    for target in found:
        own = [r for r in records if (r.host, r.port, r.priority) == (*target[:2], first)]
        assert 0 <= target.weight <= 1 and (target.weight > 0) == bool(own)
        for other in found:
            others = [r for r in records if (r.host, r.port, r.priority) == (*other[:2], first)]
            if own and others and max(own)[3] > max(others)[3]:
                assert target.weight > other.weight
    assert not found or max(t.weight for t in found) == 1


def test_a_failing_server_leaves_the_last_good_addresses(monkeypatch):
    monkeypatch.setattr(dns, "MIN_INTERVAL_S", 0.01)
    monkeypatch.setattr(dns, "RETRY_S", 0.01)
    monkeypatch.setattr(name_servers, "LOOKUP_TIMEOUT_S", 0.1)
    seen = []

    async def scenario(stack, server):
        async def settle():
            count = len(server.asked) + 6
            while len(server.asked) < count and not server.silent:
                await asyncio.sleep(0.01)

        entry = DnsName(name=NAME, port=8)
        task = asyncio.ensure_future(
            dns.follow(entry, lambda replicas: seen.append([one.id for one in replicas]))
        )
        server.records[NAME, "A"] = 0, ["10.0.0.1"]
        await settle()
        server.failing = {"A"}
        await settle()
        server.failing = set()
        del server.records[NAME, "A"]  # no such name
        await settle()
        server.silent = True
        await asyncio.sleep(0.3)
        server.silent = False
        before = len(seen)
        server.records[NAME, "A"] = 0, ["10.0.0.2"]
        while len(seen) == before:
            await asyncio.sleep(0.01)
        task.cancel()
        assert seen[0] == ["10.0.0.1:8"] and seen[-1] == ["10.0.0.2:8"]
        assert {tuple(one) for one in seen[:before]} == {("10.0.0.1:8",)}

    monkeypatch.setattr(dns, "addresses", only_name_servers)
    asked(scenario, monkeypatch)


async def only_name_servers(name):
    """As `dns.addresses`, without the system's resolver, which would ask beyond this machine."""
    answer = await name_servers.addresses(name)
    if answer is None:
        raise dns.LookupFailed("no such name")
    return answer


def established(host, port):
    """Connections of this machine to an IPv4 address and port."""
    there = f"{int.from_bytes(bytes(map(int, host.split('.'))), 'little'):08X}:{port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[2] == there and row[3] == "01" for row in rows)


def test_a_vanished_address_gets_nothing_more_and_its_connections_are_closed(monkeypatch):
    hosts = ("127.0.0.1", "127.0.0.2")

    async def scenario(stack, server):
        engine = Engine()
        await engine.start(stack, hosts)
        port = int(engine.url.rpartition(":")[2])
        server.records[NAME, "A"] = 1, hosts  # a TTL far below the interval
        tree = {"discovery": {"dns": [{"name": NAME, "port": port}]}}
        tree["timeouts"] = {"upstream_idle_s": 60}
        gateway = Gateway(tree, [])
        await gateway.start(stack)
        while gateway.segment.serving < 2:
            await asyncio.sleep(0.01)
        answers = await asyncio.gather(*(gateway.chat() for _ in range(20)))
        assert len({headers["x-headrace-replica"] for _, headers, _ in answers}) == 2
        assert established(hosts[1], port) > CHECKS
        server.records[NAME, "A"] = 1, hosts[:1]
        while gateway.segment.serving == 2 or established(hosts[1], port) > CHECKS:
            await asyncio.sleep(0.01)
        for _ in range(4):
            status, headers, _ = await gateway.chat()
            assert (status, headers["x-headrace-replica"]) == (200, f"{hosts[0]}:{port}")

    asked(scenario, monkeypatch)


def test_a_name_of_the_hosts_file_needs_no_name_server(monkeypatch, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost  # engines.test\n\n10.0.0.1\tgpu1 GPU1.test\n")
    monkeypatch.setattr(dns, "HOSTS_FILE", hosts)
    assert [dns.is_in_hosts_file(name) for name in ("gpu1.TEST", "localhost", NAME)] == [1, 1, 0]

    async def scenario(stack, server):
        targets, ttl_s = await dns.look_up(DnsName(name="localhost", port=9))
        assert Target("127.0.0.1", 9) in targets and ttl_s is None
        assert server.asked == []

    asked(scenario, monkeypatch)


def test_what_the_name_servers_do_not_know_is_asked_of_the_system(monkeypatch):
    async def scenario(stack, server):
        with pytest.raises(dns.LookupFailed):
            await dns.look_up(DnsName(name="no-such-name.invalid"))
        assert sorted(server.asked) == [
            ("no-such-name.invalid", "A"),
            ("no-such-name.invalid", "AAAA"),
        ]

    asked(scenario, monkeypatch)


def test_without_the_package_addresses_come_from_the_system_and_services_not_at_all(monkeypatch):
    monkeypatch.setattr(name_servers, "is_installed", lambda: False)
    assert asyncio.run(name_servers.addresses(NAME)) is None
    with pytest.raises(dns.LookupFailed, match="dnspython"):
        asyncio.run(name_servers.services(SERVICE))


def test_addresses_are_sorted_and_unique():
    found = ["10.0.0.2", "::1", "10.0.0.10", "10.0.0.2", "fe80::1%eth0"]
    assert dns.sorted_addresses(found) == ["10.0.0.2", "10.0.0.10", "::1", "fe80::1"]
    assert dns.url_of(Target("::1", 9)) == "http://[::1]:9"
