"""``mooncake inspect``: read-only looks at what the store keeps on disk and in manifests."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from mooncake import _core

from .tables import bytes_text, print_json, print_table
from .weights import manifest_of

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    inspect = commands.add_parser(
        "inspect", help="look inside a log, a snapshot, a manifest or a digests object"
    )
    actions = inspect.add_subparsers(dest="action", required=True, metavar="ACTION")

    command = actions.add_parser("log", help="a Master's log, offline and read-only")
    command.add_argument("path", type=Path, help="the Master's folder, or its log file")
    command.add_argument("--from", dest="first", type=int, default=1, help="first batch (1)")
    command.add_argument("--limit", type=int, default=0, help="batches to show (0: all)")
    command.set_defaults(run=_log)

    command = actions.add_parser(
        "snapshot", help="a snapshot of a Master's state, restored and checked"
    )
    command.add_argument("path", type=Path, help="its file, or the Master's folder (the newest)")
    command.add_argument("--records", action="store_true", help="every record, not only counts")
    command.set_defaults(run=_snapshot)

    command = actions.add_parser("manifest", help="a stored manifest")
    command.add_argument("source", help="its JSON file, or an identity in --store")
    command.add_argument("--raw", action="store_true", help="the canonical JSON itself")
    command.set_defaults(run=_manifest)

    command = actions.add_parser("digests", help="a digests object, as a node keeps it")
    command.add_argument("path", type=Path, help="its file, in a node's metadata folder")
    command.add_argument("--blocks", action="store_true", help="every block's digest")
    command.set_defaults(run=_digests)


def _log(arguments: argparse.Namespace) -> int:
    from ..reshard.weight.store import store_errors

    path = arguments.path
    if path.is_dir():
        path = path / "log.db"
    if arguments.first < 1 or arguments.limit < 0:
        raise ValueError("--from starts at 1 and --limit at 0")
    with store_errors():
        batches = _core.read_log(str(path), arguments.first, arguments.limit)
    decoded = [
        {"sequence": sequence, "term": term, "bytes": size, **json.loads(text)}
        for sequence, term, size, text in batches
    ]
    if arguments.json:
        print_json(decoded)
        return 0
    rows = []
    for batch in decoded:
        for event in batch["events"]:
            rows.append(
                (
                    batch["sequence"],
                    batch["time"],
                    event["kind"],
                    json.dumps(event["body"], ensure_ascii=False)[:120],
                )
            )
    print_table(("batch", "time", "kind", "event"), rows)
    print(f"\n{len(decoded)} batches, {bytes_text(sum(b['bytes'] for b in decoded))}")
    return 0


def _newest_snapshot(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = sorted((path / "snapshots").glob("*.snapshot"))
    if not files:
        raise ValueError(f"{path} has no snapshots yet")
    return files[-1]


def _snapshot(arguments: argparse.Namespace) -> int:
    from ..reshard.weight.store import store_errors

    path = _newest_snapshot(arguments.path)
    with store_errors():
        records = [
            (section, size, json.loads(text))
            for section, size, text in _core.read_snapshot(str(path))
        ]
    header = records[0][2]
    sections: dict[str, dict[str, int]] = {}
    for section, size, _ in records[1:]:
        counts = sections.setdefault(section, {"records": 0, "bytes": 0})
        counts["records"] += 1
        counts["bytes"] += size
    if arguments.json:
        out: dict[str, Any] = {"path": str(path), "header": header, "sections": sections}
        if arguments.records:
            out["records"] = [{"section": s, "record": record} for s, _, record in records[1:]]
        print_json(out)
        return 0
    print(f"{path}: whole; restored, its state has the digest that it names\n")
    print_table(("field", "value"), sorted(header.items()))
    print()
    print_table(
        ("section", "records", "size"),
        ((name, c["records"], bytes_text(c["bytes"])) for name, c in sections.items()),
    )
    if arguments.records:
        print()
        print_table(
            ("section", "record"),
            ((s, json.dumps(record, ensure_ascii=False)[:140]) for s, _, record in records[1:]),
        )
    return 0


def _manifest(arguments: argparse.Namespace) -> int:
    manifest = manifest_of(arguments, arguments.source)
    if arguments.raw:
        # Canonical bytes, whatever the locale.
        sys.stdout.buffer.write(manifest.to_json().encode() + b"\n")
        return 0
    if arguments.json:
        print_json(json.loads(manifest.to_json()))
        return 0
    print(f"{manifest.manifest_key}  SHA-256 {manifest.manifest_digest}")
    print(
        f"{len(manifest.tensors)} tensors, {len(manifest.fragments)} fragments, "
        f"{bytes_text(sum(f.nbytes for f in manifest.fragments))}, created {manifest.created_at}\n"
    )
    shapes = {t.tensor_id: t for t in manifest.tensors}
    print_table(
        ("tensor", "dtype", "shape", "offset", "local shape", "bytes", "object", "at"),
        (
            (
                f.tensor_id,
                shapes[f.tensor_id].dtype,
                shapes[f.tensor_id].global_shape,
                f.global_offset,
                f.local_shape,
                f.nbytes,
                f.object_key.rsplit("/", 1)[-1],
                f.object_offset,
            )
            for f in manifest.fragments
        ),
    )
    return 0


def _digests(arguments: argparse.Namespace) -> int:
    from ..reshard.weight.store import store_errors

    content = arguments.path.read_bytes()
    if content[:8] == b"MCWMETA1":  # docs/formats/node_folder.md
        content = content[52 + int.from_bytes(content[8:12], "little") :]
    with store_errors():
        payloads, fragments = _core.read_digests(content)
    if arguments.json:
        print_json(
            {
                "payloads": [
                    {"name": name, "bytes": size, "blocks": blocks}
                    for name, size, blocks in payloads
                ],
                "fragments": [
                    {"placement_fragment_id": name, "bytes": size, "fingerprint": fingerprint}
                    for name, size, fingerprint in fragments
                ],
            }
        )
        return 0
    print_table(
        ("payload", "bytes", "blocks"),
        ((name, size, len(blocks)) for name, size, blocks in payloads),
    )
    if fragments:
        print()
        print_table(("compared fragment", "bytes", "fingerprint"), fragments)
    if arguments.blocks:
        print()
        print_table(
            ("payload", "block", "XXH3-128"),
            ((name, i, block) for name, _, blocks in payloads for i, block in enumerate(blocks)),
        )
    return 0
