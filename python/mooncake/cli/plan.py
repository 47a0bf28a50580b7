"""``mooncake plan explain``: what a plan moves, between whom, in how many regions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Optional, Union

from ..reshard.weight import (
    LogicalTransferPlan,
    WeightManifest,
    WeightPlacementManifest,
    plan_placement_transfer,
    plan_placement_transfer_to_local_target,
    plan_stored_transfer_to_target_placement,
    weight_placement_from_json,
)
from .matrix import Matrix, draw_matrix, print_matrix
from .tables import bytes_text, print_json, print_table
from .weights import is_manifest_file, manifest_of, read_file

__all__ = ["add_commands", "summarize"]

STORE = "store"  # who sends what a stored revision holds


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
    command.add_argument(
        "--balance", action="store_true", help="spread reads evenly over equal replicas"
    )
    command.add_argument("--tensors", type=int, default=10, help="largest tensors shown (10)")
    command.add_argument("--pairs", type=int, default=20, help="largest pairs shown (20)")
    command.add_argument(
        "--png", type=Path, metavar="FILE", help="draw who sends how much to whom (matplotlib)"
    )
    command.set_defaults(run=_explain)


def _source(arguments: argparse.Namespace) -> Union[WeightManifest, WeightPlacementManifest]:
    path = Path(arguments.source)
    if path.is_file() and not is_manifest_file(path):
        return read_file(path, weight_placement_from_json)
    return manifest_of(arguments, arguments.source)


def _plan(arguments: argparse.Namespace) -> LogicalTransferPlan:
    source = _source(arguments)
    target = read_file(arguments.target, weight_placement_from_json)
    if isinstance(source, WeightManifest):
        if arguments.participant is not None:
            raise ValueError("--participant needs a placement as the source")
        return plan_stored_transfer_to_target_placement(source, target, balance=arguments.balance)
    if arguments.participant is not None:
        return plan_placement_transfer_to_local_target(
            source, target, arguments.participant, balance=arguments.balance
        )
    return plan_placement_transfer(source, target, balance=arguments.balance)


def _explain(arguments: argparse.Namespace) -> int:
    summary = summarize(_plan(arguments))
    matrix = Matrix.of_pairs(
        (pair["source"], pair["target"], pair["bytes"]) for pair in summary["pairs"]
    )
    if arguments.png is not None:
        draw_matrix(matrix, arguments.png)
    if arguments.json:
        print_json(summary)
        return 0
    print(
        f"{summary['tensors']} tensors, {summary['regions']} regions, {summary['runs']} runs, "
        f"{bytes_text(summary['bytes'])}\n"
    )
    _print_largest("pairs", summary["pairs"], arguments.pairs, ("source", "target"))
    _print_largest("tensors", summary["per_tensor"], arguments.tensors, ("tensor",))
    if matrix.sources:
        print("bytes from (rows) to (columns):")
        print_matrix(matrix)
        print()
    for title, region in (
        ("most runs in one region", summary["worst_region"]),
        ("smallest runs", summary["smallest_runs"]),
    ):
        _print_region(title, region)
    return 0


def _print_largest(
    noun: str, rows: list[dict[str, Any]], shown: int, names: tuple[str, ...]
) -> None:
    largest = sorted(rows, key=lambda row: (-row["bytes"], *(row[name] for name in names)))
    print_table(
        (
            *("from" if name == "source" else "to" if name == "target" else name for name in names),
            "regions",
            "runs",
            "bytes",
        ),
        (
            (*(row[name] for name in names), row["regions"], row["runs"], bytes_text(row["bytes"]))
            for row in largest[:shown]
        ),
    )
    if len(largest) > shown:
        print(f"... and {len(largest) - shown} smaller {noun}")
    print()


def _print_region(title: str, region: Optional[dict[str, Any]]) -> None:
    if region is None:
        return
    print(f"{title}: {region['runs']} of {bytes_text(region['run_bytes'])} ({region['tensor']})")
    for side in ("source", "target"):
        where = region[side]
        print(
            f"  {side:6} {where['participant']}: {_box_text(where['offset'], where['shape'])} "
            f"of fragment {where['fragment']}"
        )
    print(f"  copies {_box_text(region['offset'], region['shape'])}")


def _box_text(offset: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """[0:4, 8:16]"""
    return "[" + ", ".join(f"{o}:{o + n}" for o, n in zip(offset, shape, strict=True)) + "]"


def summarize(plan: LogicalTransferPlan) -> dict[str, Any]:
    """Totals of a plan, per (source, target) pair and per tensor, and its most cut up regions."""
    handle: Any = vars(plan)["_handle"]
    totals, pairs, tensors, most_runs, smallest_runs = handle.summary()
    owners = _owners(plan, (most_runs, smallest_runs))
    return {
        "tensors": len(tensors),
        **_totals(totals),
        "pairs": [
            {"source": STORE if source is None else source, "target": target, **_totals(counts)}
            for source, target, counts in pairs
        ],
        "per_tensor": [{"tensor": name, **_totals(counts)} for name, counts in tensors],
        "worst_region": _region(plan, most_runs, owners),
        "smallest_runs": _region(plan, smallest_runs, owners),
    }


def _totals(counts: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("regions", "runs", "bytes"), counts, strict=True))


def _region(
    plan: LogicalTransferPlan, index: Optional[int], owners: dict[str, str]
) -> Optional[dict[str, Any]]:
    if index is None:
        return None
    region = plan.operations[index]
    sides = {}
    for side, fragment in (("source", region.source), ("target", region.target)):
        sides[side] = {
            "participant": owners.get(fragment.fragment_id, STORE),
            "fragment": fragment.fragment_id,
            "offset": fragment.global_offset,
            "shape": fragment.local_shape,
        }
    return {
        "tensor": region.tensor_id,
        "runs": region.segment_count,
        "run_bytes": region.inner_bytes,
        "offset": region.overlap_offset,
        "shape": region.overlap_shape,
        **sides,
    }


def _owners(plan: LogicalTransferPlan, operations: tuple[Optional[int], ...]) -> dict[str, str]:
    """fragment id -> participant, for the fragments of these operations."""
    regions = [plan.operations[index] for index in operations if index is not None]
    owners = {}
    for executors, fragments in (
        (plan.source_executors, {region.source.fragment_id for region in regions}),
        (plan.target_executors, {region.target.fragment_id for region in regions}),
    ):
        for executor in executors:
            for fragment_id in fragments.intersection(executor.placement_fragment_ids):
                owners[fragment_id] = executor.participant_id
    return owners
