"""The image, built without an engine by deploy/build-image.sh and run in namespaces of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("buildah", "debootstrap", "unshare", "nsenter", "chroot", "ip")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, TOOLS)),
        reason=f"needs root and {', '.join(TOOLS)}",
    ),
]
NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")
# What a runtime does: a network of its own, a read-only root, /proc, /dev, another user.
SETUP = """
ip link set lo up
mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"
mount -t proc proc "$1/proc" && mount --bind /dev "$1/dev"
root=$1 user=$2; shift 2
exec chroot --userspec="$user" "$root" env -i "$@"
"""
ASK = """
import json, sys, urllib.request
body = {"model": "tiny", "prompt": "a", "max_tokens": int(sys.argv[1]), "stream": True}
ask = urllib.request.Request("http://127.0.0.1:30000/v1/completions", json.dumps(body).encode(),
                             {"content-type": "application/json"})
with urllib.request.urlopen(ask, timeout=60) as answer:
    print(answer.readline().decode(), flush=True)
    print(answer.read().decode()[-20:])
"""


@pytest.fixture(scope="module")
def image():
    """The folder of the image's files, and its configuration."""
    build = ROOT / "build" / "image"
    subprocess.run([ROOT / "deploy" / "build-image.sh", build], check=True)
    described = json.loads((build / "image.json").read_text())
    return build / "rootfs", described["Docker"]["config"]


class Container:
    """The image's entry point as PID 1."""

    def __init__(self, image, log, *words, env=()):
        root, self.config = image
        command = [*self.config["Env"], *env, *self.config["Entrypoint"], *words]
        self.outside = subprocess.Popen(
            [*NAMESPACES, "sh", "-ec", SETUP, "sh", str(root), self.config["User"], *command],
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
        )
        self.log = log
        children = Path(f"/proc/{self.outside.pid}/task/{self.outside.pid}/children")
        self.pid = int(until(children.read_text))
        user = self.config["User"].partition(":")[0]
        status = Path(f"/proc/{self.pid}/status")
        until(lambda: f"\nUid:\t{user}\t" in status.read_text())  # chroot comes before setuid

    def beside(self, *words, spaces=("-m", "-n")):
        """What starts `words` as the same user; by default it outlives the container."""
        user, group = self.config["User"].split(":")
        inside = ["nsenter", "-t", str(self.pid), *spaces, "-r", "-w", "-S", user, "-G", group]
        return [*inside, "env", "-i", *self.config["Env"], *words]

    def run(self, *words):
        inside = self.beside(*words, spaces=("-m", "-n", "-p"))
        return subprocess.run(inside, capture_output=True, text=True, check=False)

    def stop(self):
        """SIGTERM to PID 1; returns its exit code."""
        os.kill(self.pid, getattr(signal, self.config["StopSignal"]))
        return self.outside.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if self.outside.poll() is None:
            os.kill(self.pid, signal.SIGKILL)  # --kill-child ends with the change of user
        self.outside.wait(30)


def until(seen, timeout_s=30.0):
    """The first true result of `seen`."""
    deadline = time.monotonic() + timeout_s
    while not (result := seen()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return result


def test_it_serves_reports_its_health_and_drains_as_the_first_process(image, tmp_path):
    words = ("serve", "--replicas", "http://127.0.0.1:8100")
    no_settling = ["HEADRACE_SERVER__DRAIN_SETTLE_S=0"]
    with Container(image, tmp_path / "log", *words, env=no_settling) as it:
        mock = subprocess.Popen(it.beside("headrace", "mock", "--model", "tiny", "--port", "8100"))
        try:
            until(lambda: "warming -> ready" in it.log.read_text())
            kind, *health = it.config["Healthcheck"]["Test"]
            assert kind == "CMD"
            assert it.run(*health).returncode == 0
            assert "Read-only" in it.run("python", "-c", "open('/opt/x', 'w')").stderr
            assert it.run("id", "-u").stdout == "65532\n"
            leaves_an_orphan = ("sh", "-c", "sleep 0.1 &")
            it.run(*leaves_an_orphan)
            time.sleep(0.2)
            until(lambda: " Z " not in it.run("sh", "-c", "cat /proc/[0-9]*/stat").stdout)
            asked = it.beside("python", "-c", ASK, "100")
            stream = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True)
            assert stream.stdout.readline().startswith("data: {")
            assert it.stop() == 0
            assert stream.stdout.read().endswith("[DONE]\n\n\n")
        finally:
            mock.terminate()
            mock.wait(30)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_mock_stops_as_the_first_process(image, tmp_path):
    with Container(image, tmp_path / "log", "mock", "--model", "tiny") as it:
        until(lambda: "headrace mock ready" in it.log.read_text())
        assert it.stop() == 0


def test_every_extra_that_the_configuration_can_turn_on_is_there(image, tmp_path):
    parts = "kubernetes_asyncio, opentelemetry.sdk, dns, zmq.asyncio, statsmodels.tsa.holtwinters"
    with Container(image, tmp_path / "log", "mock", "--model", "tiny") as it:
        assert it.run("python", "-c", f"import {parts}").stderr == ""


def test_only_what_runs_is_in_it(image):
    root, config = image
    assert not list(root.glob("src/*"))
    assert not list(root.glob("opt/headrace/lib/*/site-packages/headrace/**/*.c"))
    assert not [word for word in config["Env"] if re.match("PIP|SSL|.*(TOKEN|KEY)", word)]
