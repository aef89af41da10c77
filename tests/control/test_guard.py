import asyncio
import ipaddress

import pytest

from headrace.control import guard
from headrace.errors import ClientError


@pytest.mark.parametrize(
    "address, is_refused",
    [
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("8.8.8.8", False),
        ("169.254.169.254", True),
        ("::ffff:169.254.169.254", True),
        ("fe80::1", True),
        ("fd00:ec2::254", True),
        ("100.100.100.200", True),
        ("0.0.0.0", True),
        ("224.0.0.1", True),
        ("::1", False),
    ],
)
def test_addresses_where_credentials_live_are_refused(address, is_refused):
    assert bool(guard.refusal(ipaddress.ip_address(address), None)) == is_refused


def test_the_list_of_networks_allows_and_never_opens_the_link_local_ones():
    allowed = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("169.254.0.0/16")]
    refusals = {
        a: bool(guard.refusal(ipaddress.ip_address(a), allowed))
        for a in ("10.1.1.1", "::ffff:10.1.1.1", "11.0.0.1", "169.254.1.1")
    }
    assert refusals == {
        "10.1.1.1": False,
        "::ffff:10.1.1.1": False,
        "11.0.0.1": True,
        "169.254.1.1": True,
    }


def test_names_count_by_their_addresses():
    asyncio.run(guard.check_urls(["http://localhost:8000", None], None))
    with pytest.raises(guard.Forbidden):
        asyncio.run(guard.check_urls(["http://localhost:8000"], ["10.0.0.0/8"]))
    with pytest.raises(ClientError, match="resolve"):
        asyncio.run(guard.check_urls(["http://no-such-name.invalid"], None))


@pytest.mark.parametrize(
    "headers, has_key, is_allowed",
    [
        ({}, False, True),
        ({"host": "10.0.0.1:29000", "origin": "http://10.0.0.1:29000"}, False, True),
        ({"host": "localhost:29000", "origin": "http://localhost:29000"}, False, True),
        ({"host": "admin.lan:29000", "origin": "http://admin.lan:29000"}, False, True),
        ({"host": "rebound.test:29000", "origin": "http://rebound.test:29000"}, False, False),
        ({"host": "proxy.lan", "origin": "https://proxy.lan"}, True, True),
        ({"host": "10.0.0.1:29000", "origin": "http://10.0.0.1:8080"}, True, False),
        ({"host": "10.0.0.1:29000", "origin": "null"}, True, False),
        ({"host": "10.0.0.1", "sec-fetch-site": "same-site"}, True, False),
        ({"host": "10.0.0.1", "sec-fetch-site": "same-origin"}, False, True),
        ({"origin": "http://"}, False, False),
    ],
)
def test_pages_may_change_things_only_at_their_own_address(headers, has_key, is_allowed):
    if is_allowed:
        guard.check_origin(headers, "admin.lan", has_key)
    else:
        with pytest.raises(guard.Forbidden):
            guard.check_origin(headers, "admin.lan", has_key)
