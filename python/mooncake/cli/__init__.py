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
    """Lets what stands before a command stand behind it too, where many people write it."""
    for command in commands.choices.values():
        command.add_argument("--store", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        for option in _CREDENTIALS:
            command.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                _repeat_everywhere(action)


# The option and the variable that the store reads (WeightStore): this process is the command's.
_CREDENTIALS = {"--token-file": "MOONCAKE_TOKEN_FILE", "--tls-ca": "MOONCAKE_TLS_CA"}


def _set_credentials(arguments: argparse.Namespace) -> None:
    if arguments.token_file:
        os.environ.pop("MOONCAKE_TOKEN", None)  # an option wins over the environment
        os.environ["MOONCAKE_TOKEN_FILE"] = arguments.token_file
    if arguments.tls_ca:
        os.environ["MOONCAKE_TLS_CA"] = arguments.tls_ca


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs one command; returns its exit status (0 well, 1 refused or failed, 2 misused)."""
    from . import conformance, doctor, inspect, objects, plan, status, tenants, tokens, weights

    parser = argparse.ArgumentParser(
        prog="mooncake", description="Model weight revisions: store, find, load, look inside."
    )
    parser.add_argument(
        "--store",
        default=os.environ.get("MOONCAKE_STORE", ""),
        metavar="URI",
        help="mooncake://host:port or file:///folder (default: $MOONCAKE_STORE)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token to show (default: $MOONCAKE_TOKEN_FILE, or $MOONCAKE_TOKEN)",
    )
    parser.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="PEM of who signs the Master's certificate (default: $MOONCAKE_TLS_CA)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (weights, objects, status, tenants, plan, inspect, doctor, tokens, conformance):
        module.add_commands(commands)
    _repeat_everywhere(commands)
    for stream in (sys.stdout, sys.stderr):
        # A name that the locale cannot spell is shown escaped.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = parser.parse_args(argv)
    _set_credentials(arguments)
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
