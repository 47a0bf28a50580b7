"""``mooncake status``: the cluster's nodes, space and counts."""

from __future__ import annotations

import argparse
import json
from typing import Any

from mooncake import _core

from .tables import bytes_text, print_json, print_table

__all__ = ["add_commands", "cluster_status"]


def add_commands(commands: Any) -> None:
    command = commands.add_parser("status", help="nodes, space and counts of the store")
    command.set_defaults(run=_status, needs_store=True)


def cluster_status(store: str) -> dict[str, Any]:
    """What the Master knows of its cluster; byte counts and counters as ints."""
    from ..reshard.weight.store import store_errors

    with store_errors():
        client = _core.StoreClient(store)
        try:
            return _numbers(json.loads(client.describe_cluster()))
        finally:
            client.close()


def _numbers(value: Any) -> Any:
    """64-bit numbers, which protobuf's JSON writes as strings, as ints again."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, str) and value.isdecimal() and len(value) <= 20:
        return int(value)
    return value


def _status(arguments: argparse.Namespace) -> int:
    status = cluster_status(arguments.store)
    if arguments.json:
        print_json(status)
        return 0
    print(f"cluster {status['cluster_id']}, log at batch {status['last_log_sequence']}")
    counts = status["revisions_by_availability"]
    print(
        "revisions: "
        + (", ".join(f"{n} {name}" for name, n in sorted(counts.items()) if n) or "none")
        + f"; {status['object_count']} objects, {status['open_imports']} open imports, "
        f"{status['active_leases']} leases\n"
    )
    print_table(
        ("node", "state", "used", "releasing", "prepared", "capacity", "arenas"),
        (
            (
                node["address"]["node_id"],
                "alive" if node["alive"] else "silent",
                bytes_text(node["used_bytes"]),
                bytes_text(node["releasing_bytes"]),
                bytes_text(node["prepared_bytes"]),
                bytes_text(node["capacity_bytes"]),
                node["arena_count"],
            )
            for node in status["nodes"]
        ),
    )
    return 0
