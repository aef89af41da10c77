"""Run the gateway: a data port for OpenAI-style traffic, an admin port for metrics and control."""

from __future__ import annotations

import argparse
import os
import sys

from headrace import config as configuration
from headrace.errors import ConfigError

EXAMPLE = "headrace serve --replicas http://gpu1:8000 http://gpu2:8000"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `serve`: the configuration tree, and how to begin."""
    parser.add_argument(
        "--take-over",
        dest="take_over",
        action="store_true",
        help="upgrade in place: take the sockets of the gateway that runs here, which then drains",
    )
    configuration.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop; 2 for a bad configuration, 1 when the port cannot be had."""
    try:
        config = configuration.load(args, os.environ)
    except ConfigError as error:
        print(f"headrace serve: {error}", file=sys.stderr)
        return 2
    import uvloop

    from headrace.observe import logs
    from headrace.supervisor import Supervisor

    logs.configure(config.observability)

    async def main() -> int:
        return await Supervisor(config, args).run()

    try:
        return uvloop.run(main())
    except ConfigError as error:
        print(f"headrace serve: {error}", file=sys.stderr)
        return 1
