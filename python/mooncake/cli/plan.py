"""``mooncake plan explain``: what a plan moves, between whom, in how many regions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Union

from ..reshard.weight import (
    LogicalTransferPlan,
    WeightManifest,
    WeightPlacementManifest,
    plan_placement_transfer,
    plan_placement_transfer_to_local_target,
    plan_stored_transfer_to_target_placement,
    weight_placement_from_json,
)
from .tables import bytes_text, print_json, print_table
from .weights import is_manifest_file, manifest_of, read_file

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    plan = commands.add_parser("plan", help="explain transfer plans")
    actions = plan.add_subparsers(dest="action", required=True, metavar="ACTION")
    command = actions.add_parser(
        "explain", help="plan SOURCE into TARGET and print what it takes; moves nothing"
    )
    command.add_argument(
        "source", help="placement JSON, stored manifest JSON, or an identity in --store"
    )
    command.add_argument("target", type=Path, help="placement JSON of the target layout")
    command.add_argument("--participant", help="only this target rank (placement sources)")
    command.add_argument("--tensors", type=int, default=10, help="largest tensors shown (10)")
    command.set_defaults(run=_explain)


def _source(arguments: argparse.Namespace) -> Union[WeightManifest, WeightPlacementManifest]:
    path = Path(arguments.source)
    if path.is_file() and not is_manifest_file(path):
        return read_file(path, weight_placement_from_json)
    return manifest_of(arguments, arguments.source)


def _explain(arguments: argparse.Namespace) -> int:
    source = _source(arguments)
    target = read_file(arguments.target, weight_placement_from_json)
    if isinstance(source, WeightManifest):
        if arguments.participant is not None:
            raise ValueError("--participant needs a placement as the source")
        plan = plan_stored_transfer_to_target_placement(source, target)
    elif arguments.participant is not None:
        plan = plan_placement_transfer_to_local_target(source, target, arguments.participant)
    else:
        plan = plan_placement_transfer(source, target)
    summary = summarize(plan)
    if arguments.json:
        print_json(summary)
        return 0
    print(
        f"{summary['tensors']} tensors, {summary['regions']} regions, "
        f"{bytes_text(summary['bytes'])}\n"
    )
    print_table(
        ("from", "to", "regions", "bytes"),
        (
            (pair["source"], pair["target"], pair["regions"], bytes_text(pair["bytes"]))
            for pair in summary["pairs"]
        ),
    )
    print()
    largest = sorted(summary["per_tensor"], key=lambda row: (-row["bytes"], row["tensor"]))
    print_table(
        ("tensor", "regions", "runs", "bytes"),
        (
            (row["tensor"], row["regions"], row["runs"], bytes_text(row["bytes"]))
            for row in largest[: arguments.tensors]
        ),
    )
    worst = summary["worst_region"]
    print(
        f"\nmost runs in one region: {worst['runs']} of {bytes_text(worst['run_bytes'])} "
        f"({worst['tensor']})"
    )
    return 0


def summarize(plan: LogicalTransferPlan) -> dict[str, Any]:
    """Totals of a plan per (source, target) pair and per tensor, and its most fragmented region."""
    owners = _owners(plan)
    pairs: dict[tuple[str, str], list[int]] = {}
    tensors: dict[str, list[int]] = {}
    worst = None
    for region in plan.operations:
        source = owners.get(region.source.fragment_id, "store")
        target = owners[region.target.fragment_id]
        pair = pairs.setdefault((source, target), [0, 0])
        pair[0] += 1
        pair[1] += region.total_bytes
        tensor = tensors.setdefault(region.tensor_id, [0, 0, 0])
        tensor[0] += 1
        tensor[1] += region.segment_count
        tensor[2] += region.total_bytes
        if worst is None or region.segment_count > worst.segment_count:
            worst = region
    return {
        "tensors": len(tensors),
        "regions": len(plan.operations),
        "bytes": plan.total_bytes,
        "pairs": [
            {"source": source, "target": target, "regions": counts[0], "bytes": counts[1]}
            for (source, target), counts in sorted(pairs.items())
        ],
        "per_tensor": [
            {"tensor": name, "regions": c[0], "runs": c[1], "bytes": c[2]}
            for name, c in sorted(tensors.items())
        ],
        "worst_region": {
            "tensor": worst.tensor_id,
            "runs": worst.segment_count,
            "run_bytes": worst.inner_bytes,
        },
    }


def _owners(plan: LogicalTransferPlan) -> dict[str, str]:
    """fragment id -> participant, of both placements."""
    owners = {}
    for executor in plan.source_executors + plan.target_executors:
        for fragment_id in executor.placement_fragment_ids:
            owners[fragment_id] = executor.participant_id
    return owners
