"""Certificates as control uses and exchanges them."""

import asyncio
import contextlib
import os
import ssl

import pytest
import trustme
from gateway_loop import Engine, Gateway

from headrace.config import UpstreamTls, parse
from headrace.errors import ConfigError
from headrace.tls import ClientTls, ServerTls


class Authority:
    """A CA, its file, and contexts of replicas with its certificates."""

    def __init__(self, file):
        self.ca, self.file = trustme.CA(), file
        self.ca.cert_pem.write_to_path(file)

    def server(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("localhost").configure_cert(context)
        return context

    def write(self, cert, key):
        pair = self.ca.issue_cert("localhost")
        cert.write_bytes(b"".join(blob.bytes() for blob in pair.cert_chain_pems))
        pair.private_key_pem.write_to_path(key)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "ca.pem")


def test_https_replicas_are_checked_with_the_configured_authority(authority, tmp_path):
    other = Authority(tmp_path / "other.pem")

    async def main():
        async with contextlib.AsyncExitStack() as stack, asyncio.timeout(15):
            trusted, unknown = Engine(), Engine()
            await trusted.start(stack, tls=authority.server())
            await unknown.start(stack, tls=other.server())
            settings = {"upstream_tls": {"ca": str(authority.file)}}
            gateway = Gateway({"server": settings}, [trusted])
            await gateway.start(stack)
            status, headers, _ = await gateway.chat()
            assert status == 200 and headers["x-headrace-replica"] in trusted.url
            async with gateway.client.post(
                f"{gateway.admin}/replicas", json={"url": unknown.url}
            ) as answer:
                assert answer.status == 201
            while "certificate" not in (reason := await reason_of(gateway, unknown)):
                await asyncio.sleep(0.02)
            assert "self-signed certificate" in reason or "unable to get local issuer" in reason
            assert unknown.bodies == []

    asyncio.run(main())


async def reason_of(gateway, engine):
    async with gateway.client.get(f"{gateway.admin}/replicas") as answer:
        entries = (await answer.json())["replicas"]
    return next(one["reason"] for one in entries if one["url"] == engine.url)


def test_settings_that_cannot_work_are_errors_of_the_configuration(authority, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.write(cert, key)
    base = {"replicas": ["http://a:1"]}
    good = {"tls_cert": str(cert), "tls_key": str(key)}
    assert parse({**base, "server": good}).server.tls_cert == str(cert)
    authority.write(tmp_path / "else.pem", key)  # a key of another certificate
    for server, name in [
        (good, "server.tls_cert"),
        ({"upstream_tls": {"ca": str(key)}}, "server.upstream_tls"),
        ({"upstream_tls": {"cert": str(cert), "key": str(key)}}, "server.upstream_tls"),
    ]:
        with pytest.raises(ConfigError, match=f"{name}.*cannot be used"):
            parse({**base, "server": server})


def test_contexts_change_with_their_files_only(authority, tmp_path):
    client, settings = ClientTls(), UpstreamTls(ca=str(authority.file))
    first = client.context(settings)
    assert client.context(settings) is first
    Authority(authority.file)
    second = client.context(settings)
    assert second is not first
    os.unlink(authority.file)
    assert client.context(settings) is second
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.write(cert, key)
    server = ServerTls(str(cert), str(key))
    key.write_text("no key")
    server.renew(str(cert), str(key))  # logged, and no error
