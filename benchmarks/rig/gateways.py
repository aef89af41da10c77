"""The gateways under comparison: how each is started, and where to get those that are absent."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig import net
from rig.loadgen import ROOT

Argv = Callable[[int, Sequence[int], Path], list[str]]


@dataclass(frozen=True)
class Gateway:
    """One gateway: its name, how to start it, and what to install if its program is missing."""

    name: str
    program: str
    argv: Argv  # of (port, replica ports, scratch directory)
    install: str
    version: Sequence[str]
    ready_path: str | None = None
    rewrites_bodies: bool = False  # the replica then cannot compare them byte by byte

    @property
    def installed(self) -> bool:
        return shutil.which(self.program) is not None


def _nginx(port: int, replicas: Sequence[int], scratch: Path) -> list[str]:
    config = scratch / "nginx.conf"
    servers = " ".join(f"server 127.0.0.1:{p};" for p in replicas)
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(f"""
{user}
worker_processes 1;
worker_rlimit_nofile 100000;
daemon off;
pid {scratch}/nginx.pid;
error_log stderr error;
events {{ worker_connections 50000; }}
http {{
  access_log off;
  client_body_temp_path {scratch}/body; proxy_temp_path {scratch}/proxy;
  fastcgi_temp_path {scratch}/f; uwsgi_temp_path {scratch}/u; scgi_temp_path {scratch}/s;
  client_max_body_size 256m; client_body_buffer_size 256k;
  keepalive_requests 1000000000;
  upstream replicas {{ {servers} keepalive 1024; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 1h;
    }}
  }}
}}
""")
    return ["nginx", "-p", str(scratch), "-c", str(config), "-e", "stderr"]


def _haproxy(port: int, replicas: Sequence[int], scratch: Path) -> list[str]:
    config = scratch / "haproxy.cfg"
    servers = "\n".join(f"  server r{p} 127.0.0.1:{p} check" for p in replicas)
    config.write_text(f"""
global
  maxconn 9900
  nbthread 1
defaults
  mode http
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  option http-no-delay
  http-reuse always
frontend data
  bind 127.0.0.1:{port} backlog 4096
  default_backend replicas
backend replicas
  balance leastconn
{servers}
""")
    return ["haproxy", "-db", "-f", str(config)]


def _headrace(port: int, replicas: Sequence[int], scratch: Path) -> list[str]:
    argv = [sys.executable, "-m", "headrace", "serve", "--host", "127.0.0.1", "--port", str(port)]
    argv += [
        "--admin-port",
        str(net.free_ports(1)[0]),
        "--processes",
        "1",
        "--log-level",
        "warning",
    ]
    argv += ["--max-concurrency", "20000", "--replicas"]
    return argv + [f"http://127.0.0.1:{p}" for p in replicas]


def _router(*words: str) -> Argv:
    def argv(port: int, replicas: Sequence[int], scratch: Path) -> list[str]:
        urls = [f"http://127.0.0.1:{p}" for p in replicas]
        listen = ["--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin"]
        listen += ["--prometheus-port", str(net.free_ports(1)[0]), "--log-level", "error"]
        return [*words, "--worker-urls", *urls, *listen]

    return argv


GATEWAYS = [
    Gateway("nginx", "nginx", _nginx, "apt-get install nginx-light", ["nginx", "-v"]),
    Gateway("haproxy", "haproxy", _haproxy, "apt-get install haproxy", ["haproxy", "-v"]),
    Gateway(
        "vllm-router",
        "vllm-router",
        _router("vllm-router"),
        "pip install vllm-router",
        ["echo", "vllm-router"],
        "/health",
        rewrites_bodies=True,
    ),
    Gateway(
        "sglang-router",
        "sglang-router",
        _router("sglang-router", "launch"),
        "pip install sglang-router",
        ["sglang-router", "--version"],
        "/health",
        rewrites_bodies=True,
    ),
    Gateway(
        "smg",
        "smg",
        _router("smg", "launch"),
        "pip install smg",
        ["smg", "--version"],
        "/health",
        rewrites_bodies=True,
    ),
    Gateway(
        "headrace",
        sys.executable,
        _headrace,
        "pip install .",
        [sys.executable, "-m", "headrace", "--version"],
        "/readiness",
    ),
]


def custom(text: str) -> Gateway:
    """A gateway from NAME=COMMAND, where {port} and {replicas} (URLs) are filled in."""
    name, _, command = text.partition("=")

    def argv(port: int, replicas: Sequence[int], scratch: Path) -> list[str]:
        urls = " ".join(f"http://127.0.0.1:{p}" for p in replicas)
        return shlex.split(command.format(port=port, replicas=urls))

    return Gateway(name, shlex.split(command)[0], argv, command, ["true"])


def version(gateway: Gateway) -> str:
    """The first line of what the program says about itself."""
    done = subprocess.run(gateway.version, capture_output=True, text=True, env=_environment())
    return (done.stdout + done.stderr).strip().partition("\n")[0]


@contextmanager
def running(
    gateway: Gateway, replicas: Sequence[int], *, core: int
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start a gateway pinned to a core; yields its port and its process once it serves."""
    (port,) = net.free_ports(1)
    with tempfile.TemporaryDirectory() as scratch:
        argv = ["taskset", "-c", str(core), *gateway.argv(port, replicas, Path(scratch))]
        log = Path(scratch) / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(argv, stdout=sink, stderr=sink, env=_environment())
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
    for end, patience_s in ((process.terminate, 8), (process.terminate, 4), (process.kill, 4)):
        if process.poll() is None:
            end()
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
