"""The conversation of a hand-over, on real sockets in one loop."""

import asyncio
import os
import socket

import pytest

from headrace import handover
from headrace.config import Server
from headrace.errors import ConfigError


def listener():
    one = socket.socket()
    one.bind(("127.0.0.1", 0))
    one.listen(8)
    return one


def offering(path, scenario):
    """Run `scenario(offer, data, admin, taken)` beside an open offer."""

    async def main():
        data, admin, taken = [listener(), listener()], [listener()], []
        offer = handover.Offer(path, lambda: (data, admin, 3), lambda: taken.append(True))
        offer.open()
        try:
            await scenario(data, admin, taken)
        finally:
            offer.close()
            for one in (*data, *admin):
                one.close()

    asyncio.run(main())


@pytest.fixture
def path(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path / "meet.sock"


def test_every_listener_arrives_and_its_backlog_with_it(path):
    async def scenario(data, admin, taken):
        with socket.create_connection(data[1].getsockname()) as client:
            client.sendall(b"waiting")
            got = await asyncio.to_thread(handover.request, path)
            assert got.hello == handover.Hello(os.getpid(), 2, 3)
            names = [one.getsockname() for one in (*data, *admin)]
            assert [one.getsockname() for one in (*got.data, *got.admin)] == names
            await asyncio.to_thread(got.take)
            while not taken:
                await asyncio.sleep(0.01)
            for one in data:
                one.close()
            got.data[1].setblocking(True)
            accepted, _ = got.data[1].accept()
            assert accepted.recv(16) == b"waiting"
            for one in (accepted, *got.data, *got.admin):
                one.close()

    offering(path, scenario)


def test_a_successor_that_goes_away_changes_nothing(path):
    async def scenario(data, admin, taken):
        for _ in range(2):
            got = await asyncio.to_thread(handover.request, path)
            got.channel.close()
            for one in (*got.data, *got.admin):
                one.close()
        await asyncio.sleep(0.05)
        assert taken == []
        assert path.exists()

    offering(path, scenario)
    assert not path.exists()


def test_the_socket_is_for_its_user_only(path):
    async def scenario(data, admin, taken):
        assert path.stat().st_mode & 0o777 == 0o600

    offering(path, scenario)
    path.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="not a directory that only"):
        handover.request(path)


def test_another_user_is_refused(path, monkeypatch):
    async def scenario(data, admin, taken):
        ours = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
        with pytest.raises(PermissionError, match=f"as uid {ours}, this gateway as {ours + 1}"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
                peer.connect(str(path))
                handover._check_peer(peer)
        monkeypatch.undo()

    offering(path, scenario)


def test_without_a_gateway_there_is_nothing_to_take(path):
    assert handover.request(path) is None
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stale.bind(str(path))
    stale.close()
    assert handover.request(path) is None


def test_a_listener_elsewhere_is_not_taken():
    with listener() as one:
        port = one.getsockname()[1]
        handover.check_address([one], "127.0.0.1", port, "server.port")
        with pytest.raises(ConfigError, match=f"listens on 127.0.0.1:{port}"):
            handover.check_address([one], "127.0.0.1", port + 1, "server.port")


def test_the_meeting_place_is_private_and_named_after_the_admin_port(monkeypatch, tmp_path):
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = handover.path_of(Server(admin_port=1234))
    assert found == tmp_path / f"headrace-{os.geteuid()}" / "127.0.0.1-1234.sock"
    assert handover.path_of(Server(take_over_path="/run/x/y.sock")).name == "y.sock"
