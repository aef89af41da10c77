"""The `headrace` command: one table of sub-commands, each in a module of its own."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from headrace import __version__

# name: (module, one line of help)
# A module has EXAMPLE, add_arguments(parser) and run(args) -> exit code.
COMMANDS = {
    "serve": ("headrace.serve", "run the gateway"),
    "check": ("headrace.check", "validate a configuration and print the effective one"),
    "mock": ("headrace.mock.command", "run fake vLLM replicas with realistic dynamics"),
    "bench": ("headrace.bench.command", "put load on an OpenAI-compatible URL and measure"),
    "sim": ("headrace.sim.command", "simulate a fleet with the real router"),
    "plan": ("headrace.plan.command", "plan capacity: model, cards, split, replicas"),
    "top": ("headrace.top", "watch a running gateway in the terminal"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns its exit code (0 success, 1 failure, 2 bad usage)."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="headrace", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = words[0] if words and words[0] in COMMANDS else None
    for name, (module_name, text) in COMMANDS.items():
        if name != wanted:  # a module is imported only for its own command
            commands.add_parser(name, help=text, add_help=False)
            continue
        module = importlib.import_module(module_name)
        sub = commands.add_parser(
            name,
            help=text,
            description=module.__doc__,
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    args = parser.parse_args(words)
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `headrace … | head`
        return 0
