"""The `mooncake` command."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, Optional

from ..reshard.weight.errors import WeightStoreError

__all__ = ["main"]


def _repeat_everywhere(commands: Any) -> None:
    """Lets --store and --json stand behind a command too, where many people write them."""
    for command in commands.choices.values():
        command.add_argument("--store", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                _repeat_everywhere(action)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs one command; returns its exit status (0 well, 1 refused or failed, 2 misused)."""
    from . import conformance, doctor, inspect, objects, plan, status, weights

    parser = argparse.ArgumentParser(
        prog="mooncake", description="Model weight revisions: store, find, load, look inside."
    )
    parser.add_argument(
        "--store",
        default=os.environ.get("MOONCAKE_STORE", ""),
        metavar="URI",
        help="mooncake://host:port or file:///folder (default: $MOONCAKE_STORE)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (weights, objects, status, plan, inspect, doctor, conformance):
        module.add_commands(commands)
    _repeat_everywhere(commands)
    for stream in (sys.stdout, sys.stderr):
        # A name that the locale cannot spell is shown escaped.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = parser.parse_args(argv)
    if getattr(arguments, "needs_store", False) and not arguments.store:
        parser.error("which store? give --store URI or set MOONCAKE_STORE")
    try:
        status = arguments.run(arguments) or 0
        if sys.stdout is not None:  # closed by the caller
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has seen enough; what is buffered still has to go somewhere at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (WeightStoreError, ValueError, OSError) as error:
        print(f"mooncake: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("mooncake: interrupted", file=sys.stderr)
        return 130
