"""A certificate that is replaced under the real command, each way to say reload."""

import signal
import socket
import ssl
import time

import pytest
import trustme
from gateway_process import Command, free_port, get

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


class Files:
    """A certificate and its key, which can be replaced."""

    def __init__(self, folder):
        self.ca = trustme.CA()
        self.trust = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.trust)
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.replace()

    def replace(self):
        pair = self.ca.issue_cert("localhost")
        self.cert.write_bytes(b"".join(blob.bytes() for blob in pair.cert_chain_pems))
        pair.private_key_pem.write_to_path(self.key)

    def shown(self, port):
        """The number of the certificate that a new connection gets."""
        context = ssl.create_default_context(cafile=self.trust)
        with socket.create_connection(("127.0.0.1", port), 5) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                return client.getpeercert()["serialNumber"]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_replaced_certificate_is_shown_after_a_reload(tmp_path, processes):
    files = Files(tmp_path)
    port, admin = free_port(), free_port()
    gateway = Command(
        *("serve", "--replicas", "http://127.0.0.1:9", "--host", "127.0.0.1"),
        *("--port", str(port), "--admin-port", str(admin), "--processes", processes),
        *("--tls-cert-path", str(files.cert), "--tls-key-path", str(files.key)),
    )
    ways = [
        lambda: gateway.process.send_signal(signal.SIGHUP),
        lambda: get(f"http://127.0.0.1:{admin}/reload", b""),
    ]
    try:
        gateway.wait_line(b"headrace ready: https://")
        for reload in ways:
            old = files.shown(port)
            files.replace()
            assert files.shown(port) == old
            reload()
            deadline = time.monotonic() + 10
            while {files.shown(port) for _ in range(8)} & {old}:
                assert time.monotonic() < deadline, "the old certificate is still shown"
    finally:
        gateway.process.kill()
        gateway.process.wait()
