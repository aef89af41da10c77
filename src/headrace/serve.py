"""Run the gateway: a data port for OpenAI-style traffic, an admin port for metrics and control."""

from __future__ import annotations

import argparse
import logging
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
    configure_logging(config.observability)
    import uvloop

    from headrace.supervisor import Supervisor

    async def main() -> int:
        return await Supervisor(config, args).run()

    try:
        return uvloop.run(main())
    except ConfigError as error:
        print(f"headrace serve: {error}", file=sys.stderr)
        return 1


def configure_logging(settings: configuration.Observability) -> None:
    """Logs go to stderr, one line a record, as text or JSON."""
    from headrace.observe.logs import formatter

    handler = logging.StreamHandler()
    handler.setFormatter(formatter(settings.log_json))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
