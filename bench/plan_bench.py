"""Planning through the Python face against a straightforward planner in pure Python.

The models that the C++ half (bin/plan_bench) times in the core alone. Both planners get the same
placements and must give the same regions. Ours is the median of several runs, the baseline one
run, each of the source index and the plan together; building the placements is timed apart.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy
import plain_planner
from mooncake.reshard.conformance import (
    CHECKPOINT,
    FUSED,
    TensorFamily,
    model_named,
    tensor_families,
)
from mooncake.reshard.weight import (
    OwnershipAxis,
    ParallelRank,
    ParallelTopology,
    PlanningLimits,
    ReplicatedAxis,
    RuntimeBindingFragment,
    SplitAxis,
    TopologyParticipant,
    WeightPlacementManifest,
    WeightRuntimeBindingManifest,
    plan_placement_transfer,
    plan_placement_transfer_to_local_target,
    validate_runtime_binding,
)
from mooncake.reshard.weight.columns import (
    FragmentColumns,
    TensorColumns,
    TensorKind,
    placement_from_columns,
)

UNLIMITED = PlanningLimits(1 << 62, 1 << 62, 1 << 62)
FINGERPRINT = "row-major-v1"


class Grid(NamedTuple):
    """Axis sizes. `shared`: tp and ep coordinates are those of the same workers."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    shared: bool = False

    def ranks(self) -> list[ParallelRank]:
        return [
            ParallelRank(dp=dp, pp=pp, ep=tp if self.shared else ep, tp=tp)
            for dp in range(self.dp)
            for pp in range(self.pp)
            for ep in range(1 if self.shared else self.ep)
            for tp in range(self.tp)
        ]


class Columns:
    """Collects the rows of a placement."""

    def __init__(self, grid: Grid) -> None:
        ranks = grid.ranks()
        names = [f"worker-{i:04d}" for i in range(len(ranks))]
        self.topology = ParallelTopology(
            tp_size=grid.tp,
            pp_size=grid.pp,
            ep_size=grid.ep,
            dp_size=grid.dp,
            participants=[TopologyParticipant(n, r) for n, r in zip(names, ranks, strict=True)],
        )
        self.names: list[str] = []
        self.kinds: list[TensorKind] = []
        self.tensors: list[tuple[numpy.ndarray, ...]] = []  # ranks, shapes, kinds
        self.fragments: list[tuple[numpy.ndarray, ...]] = []

    def add_tensors(self, names: Sequence[str], shape: Sequence[int], kind: TensorKind) -> int:
        """The row of the first of them."""
        if kind not in self.kinds:
            self.kinds.append(kind)
        first, count = len(self.names), len(names)
        self.names += names
        self.tensors.append(
            (
                numpy.full(count, len(shape)),
                numpy.tile(shape, count),
                numpy.full(count, self.kinds.index(kind)),
            )
        )
        return first

    def add_fragments(
        self, rows: numpy.ndarray, participant: int, offset: Sequence[int], shape: Sequence[int]
    ) -> None:
        count = len(rows)
        self.fragments.append(
            (
                rows,
                numpy.full(count, participant),
                numpy.tile(offset, count),
                numpy.tile(shape, count),
            )
        )

    def build(self, resource: str) -> WeightPlacementManifest:
        ranks, shapes, kind_of = (numpy.concatenate(c) for c in zip(*self.tensors, strict=True))
        rows, participants, offsets, extents = (
            numpy.concatenate(c) for c in zip(*self.fragments, strict=True)
        )
        return placement_from_columns(
            resource_id=resource,
            revision="r1",
            weight_generation=1,
            placement_set_id="bench",
            topology=self.topology,
            tensors=TensorColumns(self.names, ranks, shapes, self.kinds, kind_of),
            fragments=FragmentColumns(rows, participants, offsets, extents),
        )


def model_placement(name: str, grid: Grid, grouped: bool = False) -> WeightPlacementManifest:
    """A published model on a grid: TP cuts matrices, EP owns experts, PP layers; DP repeats.

    `grouped`: all experts of a layer are one tensor.
    """
    model = model_named(name)
    columns = Columns(grid)
    families = tensor_families(model, CHECKPOINT)
    if grouped:
        families = [family for family in families if family.role != "expert"]
        families += [f for f in tensor_families(model, FUSED) if f.role == "expert"]
    for family in families:
        if not family.draft:
            _add_family(columns, model.layers, family, grid)
    return columns.build(name)


def _add_family(columns: Columns, model_layers: int, family: TensorFamily, grid: Grid) -> None:
    layers = family.layers or (None,)
    stages = [
        grid.pp - 1
        if layer is None and family.last_stage
        else 0
        if layer is None
        else layer * grid.pp // model_layers
        for layer in layers
    ]
    experts = family.experts or 1
    expert_owner = numpy.arange(experts) * grid.ep // experts
    owned = family.experts > 0
    grouped = family.expert_dim is not None
    cut = family.cut_dim
    # On shared workers an expert's owner holds it whole, and grouped experts are cut by EP alone.
    if grid.shared and (owned or grouped):
        cut = None
    first = columns.add_tensors(family.names(), family.shape, _kind(family, grid, cut))
    rows = first + numpy.arange(len(layers) * experts).reshape(len(layers), experts)
    stages_array = numpy.array(stages)
    for participant, member in enumerate(columns.topology.participants):
        rank = member.rank
        mine = rows[stages_array == rank.pp]
        if owned:
            mine = mine[:, expert_owner == rank.ep]
        if mine.size == 0:
            continue
        offset, shape = [0] * len(family.shape), list(family.shape)
        if cut is not None:
            shape[cut] //= grid.tp
            offset[cut] = rank.tp * shape[cut]
        if grouped:
            shape[0] //= grid.ep
            offset[0] = rank.ep * shape[0]
        columns.add_fragments(mine.reshape(-1), participant, offset, shape)


def _kind(family: TensorFamily, grid: Grid, cut: Optional[int]) -> TensorKind:
    axes: list[Any] = [ReplicatedAxis("dp"), OwnershipAxis("pp")]
    if family.expert_dim is not None:
        axes.append(SplitAxis("ep", 0))
    elif family.experts:
        axes.append(OwnershipAxis("ep"))
    elif not grid.shared:
        axes.append(ReplicatedAxis("ep"))
    if grid.shared and family.experts:
        axes.append(OwnershipAxis("tp"))
    elif not (grid.shared and family.expert_dim is not None):
        axes.append(ReplicatedAxis("tp") if cut is None else SplitAxis("tp", cut))
    return TensorKind(family.dtype, family.itemsize, FINGERPRINT, tuple(axes))


def cube_placement(dim: int) -> WeightPlacementManifest:
    """(32, 8192, 8192) of two bytes, cut along `dim` over eight ranks."""
    columns = Columns(Grid(tp=8))
    shape = (32, 8192, 8192)
    row = columns.add_tensors(
        ["w"], shape, TensorKind("bfloat16", 2, FINGERPRINT, (SplitAxis("tp", dim),))
    )
    for participant, member in enumerate(columns.topology.participants):
        offset, extents = [0, 0, 0], list(shape)
        extents[dim] //= 8
        offset[dim] = member.rank.tp * extents[dim]
        columns.add_fragments(numpy.array([row]), participant, offset, extents)
    return columns.build("cube")


def blocks_placement(rows: int, columns_count: int) -> WeightPlacementManifest:
    """One matrix of 1536 x 1536 in so many rows and columns of blocks, all on one rank."""
    side = 1536
    columns = Columns(Grid())
    columns.add_tensors(["w"], (side, side), TensorKind("bfloat16", 2, FINGERPRINT))
    top = numpy.arange(rows + 1) * side // rows
    left = numpy.arange(columns_count + 1) * side // columns_count
    y, x = (a.reshape(-1) for a in numpy.meshgrid(top[:-1], left[:-1], indexing="ij"))
    h, w = (a.reshape(-1) for a in numpy.meshgrid(numpy.diff(top), numpy.diff(left), indexing="ij"))
    count = rows * columns_count
    zeros = numpy.zeros(count, int)
    columns.fragments.append(
        (zeros, zeros, numpy.stack([y, x], 1).reshape(-1), numpy.stack([h, w], 1).reshape(-1))
    )
    return columns.build("blocks")


class Case(NamedTuple):
    name: str
    description: str
    source: Callable[[], WeightPlacementManifest]
    target: Callable[[], WeightPlacementManifest]
    one_rank: bool = False  # the baseline plans one target rank, since all would take minutes
    growth: bool = False  # a point of the growth plot
    baseline: bool = True


def _cases() -> list[Case]:
    def model(
        name: str, grid: Grid, grouped: bool = False
    ) -> Callable[[], WeightPlacementManifest]:
        return lambda: model_placement(name, grid, grouped)

    qwen = "qwen3-235b-a22b"
    before, after = Grid(tp=4, ep=4, shared=True), Grid(tp=2, pp=2, ep=2, shared=True)
    text = "TP4/EP4 -> TP2/PP2/EP2 on shared workers"
    cases = [
        Case(
            "qwen3-moe-235b",
            f"separate experts, {text}",
            model(qwen, before),
            model(qwen, after),
        ),
        Case(
            "qwen3-moe-235b-grouped",
            f"grouped experts, {text}",
            model(qwen, before, True),
            model(qwen, after, True),
        ),
        Case(
            "dim0-to-dim2",
            "(32, 8192, 8192), eight ranks each, 2,097,152 runs",
            lambda: cube_placement(0),
            lambda: cube_placement(2),
        ),
    ]
    for side in (25, 50, 100, 200, 300, 500):
        cases.append(
            Case(
                f"grid-{side * side}",
                "blocks of one matrix to other blocks: growth",
                lambda side=side: blocks_placement(side, side),
                lambda side=side: blocks_placement(side - 7, side + 5),
                growth=True,
                baseline=side <= 100,
            )
        )
    cases.append(
        Case(
            "deepseek-v3",
            "TP4/PP2/EP8/DP2 -> TP8/PP4/EP2/DP4, full grids, fp8 with scales",
            model("deepseek-v3", Grid(tp=4, pp=2, ep=8, dp=2)),
            model("deepseek-v3", Grid(tp=8, pp=4, ep=2, dp=4)),
            one_rank=True,
        )
    )
    return cases


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds and the result."""
    start = time.perf_counter()
    result = work()
    return (time.perf_counter() - start) * 1e3, result


def run_case(case: Case, runs: int) -> dict[str, Any]:
    build_ms, (source, target) = timed(lambda: (case.source(), case.target()))
    participant = None
    if case.one_rank:
        participant = max(target.parts, key=lambda part: len(part.fragments)).participant_id

    def ours() -> Any:
        if participant is not None:
            return plan_placement_transfer_to_local_target(
                source, target, participant, planning_limits=UNLIMITED
            )
        return plan_placement_transfer(source, target, planning_limits=UNLIMITED)

    measured = [timed(ours) for _ in range(runs)]
    made = measured[-1][1]
    row: dict[str, Any] = {
        "case": case.name,
        "scope": "one rank" if case.one_rank else "all ranks",
        "tensors": len(source.tensors),
        "source_fragments": len(source.fragments),
        "target_fragments": len(target.fragments),
        "regions": len(made.operations),
        "build_ms": build_ms,
        "ours_ms": statistics.median(ms for ms, _ in measured),
        "baseline_ms": None,
        "ratio": None,
    }
    if case.one_rank:
        all_ms, whole = timed(
            lambda: plan_placement_transfer(source, target, planning_limits=UNLIMITED)
        )
        row |= {"all_ranks_ms": all_ms, "all_ranks_regions": len(whole.operations)}
        del whole
    if case.baseline:
        # The objects that the baseline walks are made beforehand.
        fragments = target.fragments
        if participant is not None:
            fragments = next(p for p in target.parts if p.participant_id == participant).fragments
        fragments, _ = tuple(fragments), tuple(source.fragments)
        row["baseline_ms"], regions = timed(
            lambda: plain_planner.plan(plain_planner.PlainSource(source), target, fragments)
        )
        row["ratio"] = row["baseline_ms"] / row["ours_ms"]
        require_same(case.name, made, regions)
    return row


def require_same(name: str, made: Any, regions: list[plain_planner.Region]) -> None:
    """SystemExit unless both planners gave the same regions in the same order."""
    ours = [
        plain_planner.Region(
            o.target.fragment_id,
            o.target_base_offset,
            o.source.fragment_id,
            o.source_base_offset,
            o.inner_bytes,
            o.outer_loop_counts,
            o.source_strides,
            o.target_strides,
        )
        for o in made.operations
    ]
    if ours == regions:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(ours, regions, strict=False)) if a != b),
        min(len(ours), len(regions)),
    )
    raise SystemExit(
        f"{name}: {len(ours)} and {len(regions)} regions; the first that differs is {at}:\n"
        f"  ours     {ours[at : at + 1]}\n  baseline {regions[at : at + 1]}"
    )


def run_binding(runs: int) -> dict[str, Any]:
    """100,000 fragments of one participant in one allocation: ours and a check in plain Python."""
    count, nbytes = 100_000, 64
    columns = Columns(Grid())
    first = columns.add_tensors(
        [f"t{i:06d}" for i in range(count)], (nbytes // 2,), TensorKind("bfloat16", 2, FINGERPRINT)
    )
    columns.add_fragments(first + numpy.arange(count), 0, (0,), (nbytes // 2,))
    build_ms, placement = timed(lambda: columns.build("binding"))
    base = 1 << 40
    fragments = [
        RuntimeBindingFragment(
            placement_fragment_id=fragment.placement_fragment_id,
            fragment_id=f"f{i}",
            address=base + i * nbytes,
            nbytes=nbytes,
            worker_id="w",
            endpoint="e",
            device="cpu",
            itemsize=2,
            local_shape=(nbytes // 2,),
            strides_bytes=(2,),
            storage_address=base,
            storage_nbytes=count * nbytes,
            storage_offset_bytes=i * nbytes,
        )
        for i, fragment in enumerate(placement.fragments)
    ]
    binding = WeightRuntimeBindingManifest(
        resource_id=placement.resource_id,
        placement_id=placement.placement_id,
        placement_digest=placement.digest,
        instance_id="i",
        generation=1,
        lease_id="l",
        revision=placement.revision,
        participant_id=placement.parts[0].participant_id,
        fragments=fragments,
    )
    ours = statistics.median(
        timed(lambda: validate_runtime_binding(placement, binding))[0] for _ in range(runs)
    )
    bound = tuple(binding.fragments)
    wanted = {f.placement_fragment_id: f for f in placement.fragments}
    baseline, _ = timed(lambda: _plain_binding_check(wanted, bound))
    return {
        "case": "binding-100k",
        "scope": "validation",
        "tensors": count,
        "source_fragments": count,
        "target_fragments": 0,
        "regions": 0,
        "build_ms": build_ms,
        "ours_ms": ours,
        "baseline_ms": baseline,
        "ratio": baseline / ours,
    }


def _plain_binding_check(wanted: dict[str, Any], bound: Sequence[Any]) -> None:
    """Every fragment bound once, with its bytes, within its storage, apart from all others."""
    seen = set()
    for view in bound:
        fragment = wanted[view.placement_fragment_id]
        if view.placement_fragment_id in seen or view.nbytes != fragment.nbytes:
            raise ValueError(view.placement_fragment_id)
        strides, step = [], view.itemsize
        for extent in reversed(fragment.local_shape):
            strides.append(step)
            step *= extent
        if view.local_shape != fragment.local_shape or view.strides_bytes != tuple(strides[::-1]):
            raise ValueError(view.placement_fragment_id)
        if view.address != view.storage_address + view.storage_offset_bytes:
            raise ValueError(view.placement_fragment_id)
        if view.storage_offset_bytes + view.nbytes > view.storage_nbytes:
            raise ValueError(view.placement_fragment_id)
        seen.add(view.placement_fragment_id)
    if seen != wanted.keys():
        raise ValueError("a fragment is not bound")
    end = 0
    for view in sorted(bound, key=lambda view: view.address):
        if view.address < end:
            raise ValueError(view.placement_fragment_id)
        end = view.address + view.nbytes


HEADINGS = ("case", "scope", "tensors", "source", "target", "regions", "build ms", "ours ms")
HEADINGS += ("baseline ms", "ratio")


def print_row(row: dict[str, Any]) -> None:
    def number(value: Optional[float], digits: int) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    print(
        f"{row['case']:<24} {row['scope']:<10} {row['tensors']:>8} {row['source_fragments']:>9} "
        f"{row['target_fragments']:>9} {row['regions']:>9} {row['build_ms']:>10.1f} "
        f"{row['ours_ms']:>9.2f} {number(row['baseline_ms'], 1):>12} "
        f"{number(row['ratio'], 1):>7}",
        flush=True,
    )
    if "all_ranks_ms" in row:
        print(
            f"{'':<24} all ranks: ours {row['all_ranks_ms']:.1f} ms, "
            f"{row['all_ranks_regions']} regions (the baseline is not asked: minutes)"
        )


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Time over fragments, with N log N through the first point."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def size(row: dict[str, Any]) -> int:
        return row["source_fragments"] + row["target_fragments"]

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    sizes = [size(row) for row in rows]
    axes.loglog(sizes, [row["ours_ms"] for row in rows], "o-", label="ours, Python face")
    scale = rows[-1]["ours_ms"] / (sizes[-1] * math.log(sizes[-1]))
    axes.loglog(
        sizes, [scale * n * math.log(n) for n in sizes], "--", color="gray", label="N log N"
    )
    plain = [row for row in rows if row["baseline_ms"] is not None]
    axes.loglog(
        [size(row) for row in plain],
        [row["baseline_ms"] for row in plain],
        "s-",
        label="pure Python baseline",
    )
    axes.set_xlabel("fragments of source and target")
    axes.set_ylabel("index and plan, ms")
    axes.set_title("Planning one matrix from one grid of blocks into another")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./x bench plan", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="add the rows to this file, as 'python_rows'")
    parser.add_argument("--case", action="append", help="only this one (again: more of them)")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--runs", type=int, default=5, help="of ours, median (5)")
    parser.add_argument("--plot", type=Path, help="draw growth over sizes as a PNG")
    options = parser.parse_args()
    cases = _cases()
    if options.list:
        for case in cases:
            print(f"{case.name:<24} {case.description}")
        print(f"{'binding-100k':<24} validation of 100,000 views in one allocation")
        return
    print("\nThrough the Python face, against pure Python")
    print(
        f"{HEADINGS[0]:<24} {HEADINGS[1]:<10} {HEADINGS[2]:>8} {HEADINGS[3]:>9} {HEADINGS[4]:>9} "
        f"{HEADINGS[5]:>9} {HEADINGS[6]:>10} {HEADINGS[7]:>9} {HEADINGS[8]:>12} {HEADINGS[9]:>7}"
    )
    rows = []
    for case in cases:
        if options.case and case.name not in options.case:
            continue
        rows.append(run_case(case, options.runs))
        print_row(rows[-1])
    if not options.case or "binding-100k" in options.case:
        rows.append(run_binding(options.runs))
        print_row(rows[-1])
    if options.json is not None:
        known = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps({**known, "python_rows": rows}, indent=1) + "\n")
    if options.plot is not None:
        growth = {case.name for case in cases if case.growth}
        draw(options.plot, [row for row in rows if row["case"] in growth])


if __name__ == "__main__":
    main()
