"""``mooncake tokens``: make, list and revoke the bearer tokens of a Store Master."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional
from urllib.parse import quote

from mooncake import _core

from .tables import print_json, print_table

__all__ = ["add_commands", "add_token", "revoke_token"]

_HEADER = "mooncake-tokens 1\n"
_ANY_TENANT = "*"
# So that a token that strays into a log or a repository is known for what it is.
_PREFIX = "mooncake_"
_DESCRIPTION = """\
Works on a Master's token file (docs/formats/token_file.md), which holds hashes and no tokens: a
token is printed once, when it is made. A running Master notices the change with the next call.
"""


def add_commands(commands: Any) -> None:
    tokens = commands.add_parser(
        "tokens",
        help="make, list and revoke a Master's tokens",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = tokens.add_subparsers(dest="action", required=True, metavar="ACTION")

    command = actions.add_parser("new", help="make a token, print it, and append its hash to FILE")
    command.add_argument("file", type=Path, help="the Master's --token-file; made if absent")
    command.add_argument("--role", choices=("client", "node", "operator"), required=True)
    command.add_argument("--tenant", help="whose things a client token is for")
    command.add_argument("--name", help="for logs and revocation (default: ROLE-HASH)")
    command.set_defaults(run=_new)

    command = actions.add_parser("list", help="the tokens that FILE admits")
    command.add_argument("file", type=Path)
    command.set_defaults(run=_list)

    command = actions.add_parser("revoke", help="take a token out of FILE")
    command.add_argument("file", type=Path)
    command.add_argument("name")
    command.set_defaults(run=_revoke)


def add_token(path: Path, role: str, tenant: Optional[str], name: Optional[str] = None) -> str:
    """Makes a token, appends its hash to the token file and returns it: nobody else has it.

    ValueError: the role and the tenant do not go together, or the name is taken.
    """
    if (role == "client") != bool(tenant):
        raise ValueError(
            f"a token for role {role} is for "
            + ("one tenant: give --tenant" if role == "client" else f"every tenant, got {tenant}")
        )
    token = _PREFIX + secrets.token_urlsafe(32)
    sha256 = hashlib.sha256(token.encode()).hexdigest()
    owner = quote(tenant, safe="") if tenant else _ANY_TENANT
    line = f"{name or f'{role}-{sha256[:8]}'} {role} {owner} {sha256}\n"

    def append(text: str) -> str:
        text = text or _HEADER
        return text + ("" if text.endswith("\n") else "\n") + line

    _rewrite(path, append, create=True)
    return token


def revoke_token(path: Path, name: str) -> None:
    """Takes the token of that name out of the file. ValueError: there is none."""

    def without(text: str) -> str:
        lines = text.splitlines(keepends=True)
        kept = lines[:1] + [line for line in lines[1:] if line.split()[:1] != [name]]
        if len(kept) == len(lines):
            raise ValueError(f"{path} has no token named {name}")
        return "".join(kept)

    _rewrite(path, without, create=False)


def _rewrite(path: Path, change: Callable[[str], str], *, create: bool) -> None:
    """Replaces the file's text, so that a Master reads the old one or the new one and nothing else.

    The new text is checked as the Master will check it. Mode and owner stay; two writers at a time
    wait for each other.
    """
    flags = os.O_RDWR | (os.O_CREAT if create else 0)
    while True:
        with open(os.open(path, flags, 0o600), "r+", encoding="utf-8", newline="") as old:
            fcntl.flock(old, fcntl.LOCK_EX)
            facts = os.fstat(old.fileno())
            if not path.exists() or not os.path.samestat(facts, path.stat()):
                continue  # somebody replaced it while we waited
            text = change(old.read())
            _checked(path, text)
            number, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            try:
                with open(number, "w", encoding="utf-8", newline="") as new:
                    new.write(text)
                    new.flush()
                    os.fchmod(number, facts.st_mode & 0o777)
                    if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(number, facts.st_uid, facts.st_gid)
                    os.fsync(number)
                os.replace(partial, path)
            except BaseException:
                os.unlink(partial)
                raise
            return


def _checked(path: Path, text: str) -> list[tuple[str, str, Optional[str]]]:
    """(name, role, tenant or None) of each token; ValueError says what the Master would refuse."""
    try:
        return _core.parse_tokens(text)
    except _core.StoreError as error:
        raise ValueError(f"{path}: {error.args[1]}") from None


def _new(arguments: argparse.Namespace) -> int:
    token = add_token(arguments.file, arguments.role, arguments.tenant, arguments.name)
    if arguments.json:
        print_json({"token": token, "role": arguments.role, "tenant": arguments.tenant})
        return 0
    print(token)
    print(
        "keep it in a file of mode 0600 and name that in MOONCAKE_TOKEN_FILE: it is shown only now",
        file=sys.stderr,
    )
    return 0


def _list(arguments: argparse.Namespace) -> int:
    tokens = _checked(arguments.file, arguments.file.read_text(encoding="utf-8"))
    if arguments.json:
        print_json([{"name": n, "role": role, "tenant": tenant} for n, role, tenant in tokens])
    else:
        print_table(
            ("name", "role", "tenant"),
            ((n, role, _ANY_TENANT if tenant is None else tenant) for n, role, tenant in tokens),
        )
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    revoke_token(arguments.file, arguments.name)
    return 0
