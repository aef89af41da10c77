"""Run fake vLLM replicas in one process, on consecutive ports, for trying things without a GPU."""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import signal
import sys
from dataclasses import replace
from functools import partial

import uvloop

from headrace.mock.api import Api
from headrace.mock.exporter import Exporter
from headrace.mock.faults import Control
from headrace.mock.http import Handler, HttpProtocol
from headrace.mock.options import Options
from headrace.mock.presets import DEFAULT_PRESET, PRESETS
from headrace.mock.replica import Replica
from headrace.sim.scenario import Replicas, ScenarioError, load

GOODBYE_S = 0.1  # for the last events to leave
EXAMPLE = "headrace mock --replicas 3 --port 8100 --preset llama3-8b-h100 --speedup 10"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `headrace mock`."""
    add = parser.add_argument
    add("--replicas", type=_positive, metavar="N", help="how many (default: 1)")
    add(
        "--scenario",
        metavar="NAME|FILE",
        help="the replicas of a scenario of `headrace sim`; not with --replicas, --preset, --noise",
    )
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=8100, metavar="FIRST", help="port of the first replica")
    add("--model", nargs="+", default=["mock"], metavar="NAME", help="served model names")
    add(
        "--preset",
        choices=sorted(PRESETS),
        metavar="NAME",
        help=f"engine to imitate: {', '.join(sorted(PRESETS))} (default: {DEFAULT_PRESET})",
    )
    add("--speedup", type=_factor, default=1.0, metavar="X", help="run X times as fast")
    add("--dcgm-port", type=int, metavar="P", help="serve a DCGM exporter's page here")
    add("--noise", type=_ratio, metavar="RATIO", help="of step times (default: 0)")
    add("--max-num-queued-reqs", type=int, default=0, metavar="N", help="refuse above N waiting")
    add("--api-key", help="key that clients must send")
    add("--enable-request-id-headers", action="store_true", help="echo x-request-id")
    add("--seed", type=int, default=0, help="same seed, same behaviour (default: 0)")
    add("--quiet", action="store_true", help="print nothing but errors")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; 1 if a port is taken, 2 for options that make no sense."""
    try:
        groups = _groups(args)
    except ScenarioError as error:
        print(f"headrace mock: {error}", file=sys.stderr)
        return 2
    last_port = args.port + len(groups) - 1
    if not 1 <= args.port <= last_port <= 65535:
        print(f"headrace mock: ports {args.port} to {last_port} do not exist", file=sys.stderr)
        return 2
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return uvloop.run(_serve(args, groups))


def _groups(args: argparse.Namespace) -> list[Replicas]:
    """What each replica is like, one entry a replica; raises ScenarioError."""
    own = {"count": args.replicas, "preset": args.preset, "noise_ratio": args.noise}
    given = {key: value for key, value in own.items() if value is not None}
    if args.scenario is None:
        groups = [Replicas(**given)]
    elif given:
        raise ScenarioError("--scenario says it all: not with --replicas, --preset or --noise")
    else:
        groups = load(args.scenario).replicas
    return [group for group in groups for _ in range(group.count)]


def _options(args: argparse.Namespace, group: Replicas) -> Options:
    preset = PRESETS[group.preset]
    if args.scenario is not None:  # a scenario knows no limit but the memory
        kv_tokens = group.kv_tokens or preset.kv_tokens
        preset = replace(
            preset,
            kv_tokens=kv_tokens,
            max_num_seqs=group.max_num_seqs or preset.max_num_seqs,
            max_model_len=kv_tokens,
        )
    return Options(
        models=args.model,
        preset=preset,
        speedup=args.speedup,
        seed=args.seed,
        noise_ratio=group.noise_ratio,
        api_key=args.api_key,
        request_id_headers=args.enable_request_id_headers,
        max_queued=args.max_num_queued_reqs,
    )


async def _serve(args: argparse.Namespace, groups: list[Replicas]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    fleet = [
        Replica(i, _options(args, group), args.host, args.port + i)
        for i, group in enumerate(groups)
    ]
    for replica, group in zip(fleet, groups, strict=True):
        replica.driver.engine.set_slow(replica.driver.now_ns(), group.slow)
    control = Control(fleet)
    try:
        for replica in fleet:
            api = Api(replica, partial(control.handle, asked=replica))
            replica.handler = api.handle
            await replica.listen()
        if args.dcgm_port:
            exporter = Exporter(fleet, control.handle)
            await listen(exporter.handle, args.host, args.dcgm_port)
    except OSError as error:
        print(f"headrace mock: {error}", file=sys.stderr)
        return 1
    urls = " ".join(replica.url for replica in fleet)
    print(f"headrace mock ready: {urls}", file=sys.stderr, flush=True)
    gc.freeze()
    await stop.wait()
    for replica in fleet:
        replica.stop()
    await asyncio.sleep(GOODBYE_S)
    return 0


async def listen(handler: Handler, host: str, port: int) -> None:
    """Answer requests on a port until the process ends."""
    connections: set[HttpProtocol] = set()
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: HttpProtocol(handler, connections), host, port)


def _positive(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word} is not 1 or more")
    return number


def _factor(word: str) -> float:
    number = float(word)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{word} is not above 0")
    return number


def _ratio(word: str) -> float:
    number = float(word)
    if not 0.0 <= number < 1.0:
        raise argparse.ArgumentTypeError(f"{word} is not from 0 to below 1")
    return number
