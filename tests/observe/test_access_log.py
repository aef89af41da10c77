import asyncio
import json
import os
import threading
import time

import pytest
from gateway_loop import play

from headrace.config import Observability
from headrace.errors import ConfigError
from headrace.observe import access_log
from headrace.observe.access_log import AccessLog


def until(condition, timeout_s=5.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lines_arrive_as_they_were_given(tmp_path):
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    log.add(b"1\n2\n")
    log.add(b"3\n")
    log.close()
    assert path.read_bytes() == b"1\n2\n3\n"


def test_the_file_is_rotated_by_size(tmp_path):
    path = tmp_path / "access.log"
    log = AccessLog(str(path), max_bytes=200)
    for number in range(40):
        log.add(b"request-%d\n" % number)
    log.close()
    assert path.stat().st_size <= 200
    assert len(list(tmp_path.iterdir())) > 1
    assert log.dropped == 0


def test_a_file_that_was_moved_away_is_opened_anew(tmp_path):
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    log.add(b"1\n")
    until(lambda: path.exists() and path.stat().st_size > 0)
    path.rename(tmp_path / "old.log")
    log.reopen()
    log.add(b"2\n")
    log.close()
    assert path.read_bytes() == b"2\n"


def test_a_full_queue_drops_lines_and_counts_them(tmp_path, monkeypatch):
    monkeypatch.setattr(access_log, "QUEUE_BYTES", 1000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(str(pipe))
    for number in range(3000):  # nobody reads: the pipe is full after 64 KB, then the queue is
        log.add(b"x" * 100 + b"%d\n" % number)
    assert log.dropped > 1000
    os.set_blocking(reader, True)
    drained = threading.Thread(target=read_to_end, args=(reader,))
    drained.start()
    log.close()
    drained.join(5)
    os.close(reader)


def read_to_end(descriptor):
    while os.read(descriptor, 1 << 16):
        pass


def test_lines_that_cannot_be_written_are_counted():
    log = AccessLog("/dev/full")
    for number in range(5):
        log.add(b"%d\n%d\n" % (number, number))
    until(lambda: log.dropped == 10)
    log.close()


def test_a_file_that_cannot_be_opened_is_a_mistake_of_the_configuration(tmp_path):
    with pytest.raises(ConfigError, match=r"observability\.access_log: cannot open"):
        AccessLog(str(tmp_path / "missing" / "access.log"))


ODD_MODEL = 'm\n{"id": "forged"}\r\x1b[31m'


def test_a_gateway_writes_one_honest_line_a_request(tmp_path):
    path = tmp_path / "access.log"

    async def scenario(gateway, engines):
        await gateway.chat(model=ODD_MODEL, headers={"x-request-id": 'a"}{\\'})
        await gateway.chat(
            model='unknown\n{"id": "forged"}', headers={"x-request-id": "secret-not"}
        )
        await gateway.chat(
            model=ODD_MODEL,
            stream=True,
            headers={"authorization": "Bearer sk-secret", "x-request-id": "tab\there"},
            messages=[{"role": "user", "content": "a private prompt"}],
        )
        for _ in range(200):
            if path.exists() and path.read_text().count("\n") == 3:
                break
            await asyncio.sleep(0.02)

    play(scenario, {"observability": {"access_log": str(path)}}, models=(ODD_MODEL,))
    text = path.read_text()
    plain, unknown, stream = (json.loads(line) for line in text.splitlines())
    assert "secret" not in text.replace("secret-not", "") and "private" not in text
    assert plain["id"] == 'a"}{\\'
    assert plain["model"] == ODD_MODEL
    assert (plain["outcome"], plain["status"], plain["replica"] is None) == ("ok", 200, False)
    assert (plain["prompt_tokens"], plain["completion_tokens"]) == (7, 3)
    assert plain["policy"] == "cost_aware" and plain["reason"] and plain["bytes_out"] > 0
    assert (unknown["model"], unknown["status"], unknown["replica"]) == ("other", 404, None)
    assert len(stream["id"]) == 32  # an id with a control character is replaced
    assert stream["stream"] and stream["ttft_s"] > 0 and stream["tpot_s"] > 0


def test_what_ended_just_before_the_gateway_is_in_the_log(tmp_path):
    path = tmp_path / "access.log"

    async def scenario(gateway, engines):
        for _ in range(3):
            await gateway.chat()

    play(scenario, {"observability": {"access_log": str(path)}})
    assert path.read_text().count("\n") == 3


def test_a_reload_follows_the_settings_of_the_log(tmp_path):
    first, second = tmp_path / "first.log", tmp_path / "second.log"

    async def scenario(gateway, engines):
        await gateway.chat()
        upward = gateway.control.upward
        while upward.access_log.queued_bytes or not first.read_text():
            await asyncio.sleep(0.02)
        upward.configure(Observability(access_log=str(second)))
        await gateway.chat()
        while not second.exists() or not second.read_text():
            await asyncio.sleep(0.02)
        with pytest.raises(ConfigError):
            upward.configure(Observability(access_log=str(tmp_path / "no" / "file")))
        assert upward.access_log.target == str(second)
        upward.configure(Observability())
        assert upward.access_log is None
        assert upward.dropped() == {"ring": 0, "log": 0}

    play(scenario, {"observability": {"access_log": str(first)}})
    assert first.read_text().count("\n") == second.read_text().count("\n") == 1
