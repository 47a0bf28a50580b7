"""``mooncake doctor``: what a store's folder says of its health, offline and read-only."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from mooncake import _core

from .tables import print_json

__all__ = ["add_commands"]

_PROBLEMS = ("warning", "error")
_DESCRIPTION = """\
Checks a store's folder offline and changes nothing that counts (SQLite may renew its index,
log.db-shm): a Master's (log and snapshots), a node's (ids,
METADATA files), or an embedded store's (both, and whether they agree). A folder in use is checked
as far as that can be done beside the process that has it. Nothing is repaired.

Exit status: 0 healthy (notes are no problems), 1 problems found, 2 no store's folder.
"""


def add_commands(commands: Any) -> None:
    command = commands.add_parser(
        "doctor",
        help="check a store's folder and say what is wrong with it",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("folder", type=Path, help="of a Master, a node or an embedded store")
    command.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    _core.set_log_level("off")  # what a start would log is a finding here
    try:
        kind, rows = _core.examine_folder(str(arguments.folder))
    except _core.StoreError as error:
        print(f"mooncake: {error.args[1]}", file=sys.stderr)
        return 2
    findings = [
        dict(zip(("severity", "what", "where", "advice"), row, strict=True)) for row in rows
    ]
    problems = [f for f in findings if f["severity"] in _PROBLEMS]
    if arguments.json:
        print_json(
            {
                "folder": str(arguments.folder),
                "kind": kind,
                "healthy": not problems,
                "findings": findings,
            }
        )
    else:
        print(f"{arguments.folder}: {kind}\n")
        for finding in findings:
            print(f"{finding['severity']:<8} {finding['what']}")
            print(f"         at {finding['where']}")
            if finding["advice"]:
                print(f"         -> {finding['advice']}")
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''} found"
        print(f"\n{count if problems else 'healthy'}")
    return 1 if problems else 0
