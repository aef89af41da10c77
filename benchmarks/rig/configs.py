"""Command lines and configuration files of the gateways: each as its manual would have it.

Every function takes the port to listen on, the replicas' ports, a scratch directory and the
gateway's own name of a policy, and returns the command line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rig import net

Argv = Callable[[int, Sequence[int], Path, str], list[str]]


def urls(replicas: Sequence[int]) -> list[str]:
    return [f"http://127.0.0.1:{port}" for port in replicas]


def nginx(port: int, replicas: Sequence[int], scratch: Path, policy: str) -> list[str]:
    """One worker, keep-alive upstreams, buffering off; policy "" is round robin."""
    config = scratch / "nginx.conf"
    servers = " ".join(f"server 127.0.0.1:{p};" for p in replicas)
    user = "user root;" if os.geteuid() == 0 else ""
    method = f"{policy};" if policy else ""
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
  upstream replicas {{
    {method} {servers} keepalive 1024; keepalive_requests 1000000000;
  }}
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


def haproxy(port: int, replicas: Sequence[int], scratch: Path, policy: str) -> list[str]:
    """One thread, connections shared between clients."""
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
  balance {policy}
{servers}
""")
    return ["haproxy", "-db", "-f", str(config)]


def envoy(port: int, replicas: Sequence[int], scratch: Path, policy: str) -> list[str]:
    """One worker thread; its configuration is JSON, which is YAML too."""

    def at(place: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": place}}

    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
        },
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": "replicas", "timeout": "0s"}}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network."
        "http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "data",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    endpoints = [{"endpoint": {"address": at(p)}} for p in replicas]
    limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 100_000)
    cluster = {
        "name": "replicas",
        "lb_policy": policy,
        "load_assignment": {
            "cluster_name": "replicas",
            "endpoints": [{"lb_endpoints": endpoints}],
        },
        "circuit_breakers": {"thresholds": [limits]},
    }
    listener = {"address": at(port), "filter_chains": [{"filters": filters}]}
    config = scratch / "envoy.json"
    config.write_text(
        json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})
    )
    return ["envoy", "-c", str(config), "--concurrency", "1", "-l", "error"]


def router(*words: str) -> Argv:
    """The Rust routers, which share their flags."""

    def argv(port: int, replicas: Sequence[int], scratch: Path, policy: str) -> list[str]:
        listen = ["--host", "127.0.0.1", "--port", str(port), "--policy", policy]
        listen += ["--prometheus-port", str(net.free_ports(1)[0]), "--log-level", "error"]
        return [*words, "--worker-urls", *urls(replicas), *listen]

    return argv


def litellm(port: int, replicas: Sequence[int], scratch: Path, policy: str) -> list[str]:
    """Any model name, one deployment a replica."""
    config = scratch / "litellm.json"
    models = [
        {
            "model_name": "*",
            "litellm_params": {"model": "openai/*", "api_base": f"{url}/v1", "api_key": "none"},
        }
        for url in urls(replicas)
    ]
    config.write_text(
        json.dumps({"model_list": models, "router_settings": {"routing_strategy": policy}})
    )
    # without a key on a public address it refuses to start; this one listens on loopback
    unlocked = "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true"
    program = ["env", "LITELLM_LOCAL_MODEL_COST_MAP=True", unlocked, "litellm"]
    return [*program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]


def headrace(port: int, replicas: Sequence[int], scratch: Path, policy: str) -> list[str]:
    """One process beside the supervisor, everything on."""
    argv = [sys.executable, "-m", "headrace", "serve", "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--admin-port", str(net.free_ports(1)[0]), "--processes", "1", "--policy", policy]
    argv += ["--log-level", "warning", "--max-concurrency", "20000"]
    return [*argv, "--replicas", *urls(replicas)]
