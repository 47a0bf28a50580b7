"""``mooncake conformance``: checks an exporter's placements against published models' layouts."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .tables import print_json, print_table
from .weights import read_file

if TYPE_CHECKING:
    from ..reshard.conformance import EngineLayout, Exporter, ModelConfiguration, Report

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    command = commands.add_parser(
        "conformance",
        help="check an exporter's placements of published models",
        description="Compares an exporter's placements with what the engines' layouts call for, "
        "and runs plans between them on an oracle. Without --exporter: checks the reference.",
    )
    command.add_argument(
        "--exporter",
        metavar="MODULE:NAME",
        help="callable (model, layout) -> WeightPlacementManifest, importable from here",
    )
    command.add_argument(
        "--placement",
        type=Path,
        metavar="FILE",
        help="check this placement JSON instead; needs one --model and one --layout",
    )
    command.add_argument(
        "--model", action="append", metavar="NAME", help="only this one (again: more of them)"
    )
    command.add_argument(
        "--layout", action="append", metavar="NAME", help="only this one (again: more of them)"
    )
    command.add_argument(
        "--full", action="store_true", help="models in their published size, not the small versions"
    )
    command.add_argument(
        "--peers",
        type=int,
        default=3,
        metavar="N",
        help="plan each layout with N others, both ways; -1: with all (3)",
    )
    command.add_argument("--seed", type=int, default=0, help="which others (0)")
    command.add_argument("--list", action="store_true", help="list models and layouts")
    command.set_defaults(run=_conformance)


def _conformance(arguments: argparse.Namespace) -> int:
    from ..reshard import conformance

    models = [conformance.model_named(name) for name in arguments.model or ()]
    layouts = [conformance.layout_named(name) for name in arguments.layout or ()]
    if arguments.list:
        _list(arguments, models or conformance.MODELS, layouts or conformance.LAYOUTS)
        return 0
    models = list(models or conformance.MODELS)
    if not arguments.full:
        models = [m if m.name.endswith("-small") else m.small() for m in models]
    if arguments.peers < -1:
        raise ValueError(f"--peers must be at least -1, got {arguments.peers}")
    suite = conformance.ConformanceSuite(
        models,
        conformance.LAYOUTS,
        peers=None if arguments.peers == -1 else arguments.peers,
        seed=arguments.seed,
    )
    exporter = _exporter(arguments)
    report = suite.run(exporter, layouts or None)
    _print(arguments, report)
    return 0 if report.ok else 1


def _exporter(arguments: argparse.Namespace) -> Exporter:
    from ..reshard.conformance import reference_placement
    from ..reshard.weight import weight_placement_from_json

    if arguments.placement is not None:
        if arguments.exporter is not None:
            raise ValueError("--placement and --exporter exclude each other")
        if len(arguments.model or ()) != 1 or len(arguments.layout or ()) != 1:
            raise ValueError("--placement needs one --model and one --layout")
        placement = read_file(arguments.placement, weight_placement_from_json)
        return lambda model, layout: placement
    if arguments.exporter is None:
        return reference_placement
    module, _, name = arguments.exporter.partition(":")
    if not module or not name:
        raise ValueError(f"--exporter is MODULE:NAME, got {arguments.exporter}")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--exporter {arguments.exporter}: {error}") from None
    if not callable(found):
        raise ValueError(f"--exporter {arguments.exporter} is no callable")
    return found


def _list(
    arguments: argparse.Namespace,
    models: Sequence[ModelConfiguration],
    layouts: Sequence[EngineLayout],
) -> None:
    from ..reshard.conformance import parameter_count, tensor_families, unsupported

    rows = [
        {
            "model": model.name,
            "parameters": f"{parameter_count(tensor_families(model)) / 1e9:.2f} B",
            "tensors": sum(len(family.names()) for family in tensor_families(model)),
            "layouts": sum(unsupported(model, layout) is None for layout in layouts),
            "rests on": model.rests_on,
        }
        for model in models
    ]
    if arguments.json:
        print_json({"models": rows, "layouts": list(layouts)})
        return
    print_table(tuple(rows[0]), (tuple(row.values()) for row in rows))
    print()
    print_table(
        ("layout", "engine", "tp", "pp", "dp", "ep", "vocabulary"),
        ((x.name, x.engine, x.tp, x.pp, x.dp, x.ep, x.vocabulary) for x in layouts),
    )


def _print(arguments: argparse.Namespace, report: Report) -> None:
    if arguments.json:
        print_json(
            {
                "ok": report.ok,
                "placements": report.placements,
                "plans": report.plans,
                "findings": report.findings,
                "skipped": report.skipped,
            }
        )
        return
    if report.findings:
        headings = ("model", "layout", "check", "tensor", "rank", "box", "expected", "got")
        print_table(headings, ([getattr(f, name) for name in headings] for f in report.findings))
        print()
    print(
        f"{report.placements} placements, {report.plans} plans, {len(report.findings)} findings; "
        f"{len(report.skipped)} skipped that the engines do not run"
    )
