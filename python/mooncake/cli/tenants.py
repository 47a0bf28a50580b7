"""``mooncake tenants``: quotas of ordinary objects, and what each tenant has and did."""

from __future__ import annotations

import argparse
import re
from typing import Any

from mooncake import _core

from .tables import bytes_text, print_json, print_table

__all__ = ["add_commands"]

_UNITS = {"": 0, "B": 0, "KIB": 10, "MIB": 20, "GIB": 30, "TIB": 40}


def add_commands(commands: Any) -> None:
    tenants = commands.add_parser("tenants", help="quotas of ordinary objects, and who has what")
    actions = tenants.add_subparsers(dest="action", required=True, metavar="ACTION")

    command = actions.add_parser("list", help="tenants with their quotas, objects and counters")
    command.set_defaults(run=_list, needs_store=True)

    command = actions.add_parser("set", help="make a tenant known, or change its quota")
    command.add_argument("tenant")
    command.add_argument(
        "--bytes", type=_bytes, default=0, help="of all replicas, e.g. 10GiB (default: no limit)"
    )
    command.add_argument("--objects", type=int, default=0, help="default: no limit")
    command.set_defaults(run=_set, needs_store=True)

    command = actions.add_parser("rm", help="forget a tenant that has no objects")
    command.add_argument("tenant")
    command.set_defaults(run=_remove, needs_store=True)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text)
    if match is None or match.group(2).upper() not in _UNITS:
        raise argparse.ArgumentTypeError(f"expected a size such as 512MiB or 10GiB, got {text!r}")
    return int(match.group(1)) << _UNITS[match.group(2).upper()]


def _store(arguments: argparse.Namespace) -> _core.ObjectStore:
    return _core.ObjectStore(arguments.store)


def _list(arguments: argparse.Namespace) -> int:
    from ..reshard.weight.store import store_errors

    with store_errors():
        tenants = _store(arguments).tenants()
    if arguments.json:
        print_json(tenants)
        return 0

    def quota(value: int, text: str) -> str:
        return text if value else "no limit"

    print_table(
        ["tenant", "objects", "of", "bytes", "of", "puts", "found", "evicted", "refused"],
        [
            [
                tenant["tenant_id"],
                tenant["objects"],
                quota(tenant["objects_max"], str(tenant["objects_max"])),
                bytes_text(tenant["bytes"]),
                quota(tenant["bytes_max"], bytes_text(tenant["bytes_max"])),
                tenant["puts"],
                f"{tenant['lookups_found']}/{tenant['lookups']}",
                tenant["evicted_objects"],
                tenant["refused_puts"],
            ]
            for tenant in tenants
        ],
    )
    return 0


def _set(arguments: argparse.Namespace) -> int:
    from ..reshard.weight.store import store_errors

    if arguments.objects < 0:
        raise SystemExit(f"mooncake: --objects must be 0 or more, got {arguments.objects}")
    with store_errors():
        _store(arguments).set_tenant(arguments.tenant, arguments.bytes, arguments.objects)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    from ..reshard.weight.store import store_errors

    with store_errors():
        _store(arguments).remove_tenant(arguments.tenant)
    return 0
