"""Validate a configuration and print the effective one, secrets masked."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import yaml

from headrace import __version__, config
from headrace.errors import ConfigError

EXAMPLE = "headrace check --config headrace.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `headrace serve`, because they decide what is effective, and `--json`."""
    parser.usage = "headrace check --config FILE [--json] [flags of headrace serve]"
    parser.add_argument("--json", action="store_true", help="print JSON instead of YAML")
    config.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the effective configuration; 0 if it is good, 2 with a line for each mistake."""
    try:
        effective = config.masked(config.load(args, os.environ))
    except ConfigError as error:
        for problem in error.problems:
            print(f"headrace check: {problem}", file=sys.stderr)
        if args.json:
            _print_json({"problems": list(error.problems)})
        return 2
    if args.json:
        _print_json({"config": effective})
    else:
        print(yaml.safe_dump(effective, sort_keys=False, allow_unicode=True), end="")
    return 0


def _print_json(content: dict[str, Any]) -> None:
    print(json.dumps({"headrace": __version__, "command": "check", **content}))
