"""The placement of a model under a layout, built from columns: no object for a fragment.

Whether a family takes the base contract's axes or explicit ownership follows from what the ranks
hold: axes where each pipeline stage's owners split it evenly over tp, replicate it, or own whole
experts; owners wherever that does not say it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy

from mooncake.reshard.weight import (
    OwnershipAxis,
    ParallelRank,
    ParallelTopology,
    ReplicatedAxis,
    SplitAxis,
    TopologyParticipant,
    WeightPlacementManifest,
)
from mooncake.reshard.weight.columns import (
    ExtendedKind,
    FragmentColumns,
    TensorColumns,
    TensorKind,
    placement_from_columns,
)
from mooncake.reshard.weight.extended import Section, Sections, own_boxes

from .configurations import ModelConfiguration
from .families import Part, TensorFamily, tensor_families
from .layouts import Box, EngineLayout, Share

__all__ = ["participant_name", "reference_placement"]

LAYOUT_FINGERPRINT = "row-major-v1"


def participant_name(rank: ParallelRank) -> str:
    return f"dp{rank.dp}-pp{rank.pp}-tp{rank.tp}"


def reference_placement(
    model: ModelConfiguration,
    layout: EngineLayout,
    *,
    revision: str = "r1",
    weight_generation: int = 1,
    shuffle: Optional[int] = None,
) -> WeightPlacementManifest:
    """How `layout` holds `model`. UnsupportedLayout when the engine would refuse.

    `shuffle`, a seed, puts all rows into another order, which changes nothing.
    """
    layout.check(model)
    columns = _Columns(model, layout)
    omitted = []
    for family in tensor_families(model, layout.vocabulary):
        if family.draft and not layout.draft:
            omitted += family.names()
        else:
            columns.add(family)
    tensors, fragments = columns.finish(shuffle)
    return placement_from_columns(
        resource_id=model.name,
        revision=revision,
        weight_generation=weight_generation,
        placement_set_id=layout.name,
        topology=columns.topology,
        tensors=tensors,
        fragments=fragments,
        omitted_tensors=omitted,
    )


class _Held(NamedTuple):
    """What the ranks of one stage hold of a family, and the contract's form for it."""

    shares: Mapping[int, Share]  # by participant
    axes: Optional[tuple]  # None: explicit ownership


class _Columns:
    """Collects rows; numpy arrays per family, stage and participant."""

    def __init__(self, model: ModelConfiguration, layout: EngineLayout) -> None:
        self.model, self.layout = model, layout
        self.ranks = layout.ranks()
        # The topology sorts participants by name; columns index them so.
        self.ranks.sort(key=participant_name)
        self.topology = ParallelTopology(
            tp_size=layout.tp,
            pp_size=layout.pp,
            ep_size=layout.ep,
            dp_size=layout.dp,
            participants=[TopologyParticipant(participant_name(r), r) for r in self.ranks],
        )
        self.names: list[str] = []
        self.kinds: list[TensorKind] = []
        self.kind_rows: dict[TensorKind, int] = {}
        self.first_row: dict[tuple, int] = {}  # of a family, by pattern and layers
        self.scale_rows: list[tuple[TensorFamily, int]] = []  # weights that wait for their scales
        self.tensors: dict[str, list] = {
            name: [] for name in ("ranks", "shapes", "kind_of", "layer_ids", "expert_ids")
        }
        self.fragments: dict[str, list] = {
            name: []
            for name in ("tensor_of", "participant_of", "offsets", "shapes", "stages", "slots")
        }
        self.alias_groups: list[tuple[str, ...]] = []
        self.aliases: list = []

    def add(self, family: TensorFamily) -> None:
        """All tensors of the family and all their fragments."""
        layout, layers = self.layout, family.layers or (0,)
        first_row = len(self.names)
        self.first_row[family.pattern, family.layers] = first_row
        self.names += family.names()
        stages = numpy.array([layout.stage_of(self.model, family, layer) for layer in layers])
        kinds = numpy.empty(len(layers), int)
        for stage in sorted(set(stages.tolist())):
            held = self._held(family, stage)
            positions = numpy.flatnonzero(stages == stage)
            kinds[positions] = self._kind_row(family, held)
            self._add_fragments(family, first_row, positions, held, stage)
        self._add_tensors(family, kinds)
        if family.scales:
            self.scale_rows.append((family, first_row))

    def _add_tensors(self, family: TensorFamily, kinds: numpy.ndarray) -> None:
        """Rows by layer and then expert; `kinds` has one a layer."""
        layers = numpy.array(family.layers or (-1,))
        if family.draft and family.layers:
            layers = self.model.layers + numpy.arange(len(layers))
        experts = numpy.arange(family.experts) if family.experts else numpy.array([-1])
        count = len(layers) * len(experts)
        add = self.tensors
        add["ranks"].append(numpy.full(count, len(family.shape)))
        add["shapes"].append(numpy.tile(family.shape, count))
        add["kind_of"].append(numpy.repeat(kinds, len(experts)))
        add["layer_ids"].append(numpy.repeat(layers, len(experts)))
        add["expert_ids"].append(numpy.tile(experts, len(layers)))

    def _add_fragments(
        self,
        family: TensorFamily,
        first_row: int,
        positions: numpy.ndarray,
        held: _Held,
        stage: int,
    ) -> None:
        group = self._alias_group(family)
        for participant, share in held.shares.items():
            if not share.boxes or not len(share.experts):
                continue
            experts = numpy.array(share.experts)
            rows = first_row + positions[:, None] * (family.experts or 1) + experts[None, :]
            boxes = len(share.boxes)
            slots = _slots(family, share)
            count = rows.size * boxes
            add = self.fragments
            add["tensor_of"].append(numpy.repeat(rows.reshape(-1), boxes))
            add["participant_of"].append(numpy.full(count, participant))
            for name, side in (("offsets", 0), ("shapes", 1)):
                flat = numpy.array([box[side] for box in share.boxes]).reshape(-1)
                add[name].append(numpy.tile(flat, rows.size))
            add["stages"].append(numpy.full(count, stage if self.layout.pp > 1 else -1))
            add["slots"].append(numpy.tile(slots, len(positions)))
            self.aliases.append(numpy.full(count, group))

    def _alias_group(self, family: TensorFamily) -> int:
        """Tied weights are aliases where one stage has both."""
        if family.tied_with is None or self.layout.pp > 1:
            return -1
        group = tuple(sorted((family.pattern, family.tied_with)))
        if group not in self.alias_groups:
            self.alias_groups.append(group)
        return self.alias_groups.index(group)

    # --- what is held, and its form ----------------------------------------------------------

    def _held(self, family: TensorFamily, stage: int) -> _Held:
        weight = family.scale_of or family
        shares = {}
        for participant, rank in enumerate(self.ranks):
            if rank.pp != stage:
                continue
            share = self.layout.share(self.model, weight, rank)
            if family.scale_of is not None:
                boxes = [_scale_box(weight, box) for box in share.boxes]
                if not len(share.slots):  # two boxes of the rank may lie in one block
                    boxes = list(dict.fromkeys(boxes))
                share = share._replace(boxes=tuple(boxes))
            shares[participant] = share
        shares = _cells(shares)
        return _Held(shares, self._axes(family, shares))

    def _axes(self, family: TensorFamily, shares: Mapping[int, Share]) -> Optional[tuple]:
        """The parallel axes that say exactly `shares`, None when none do."""
        layout = self.layout
        axes: list[Any] = []
        if layout.dp > 1:
            axes.append(ReplicatedAxis("dp"))
        if layout.pp > 1:
            axes.append(OwnershipAxis("pp"))
        by_tp: dict[int, Share] = {}
        for participant, share in shares.items():
            share = share._replace(boxes=tuple(share.boxes), experts=tuple(share.experts))
            if by_tp.setdefault(self.ranks[participant].tp, share) != share:
                return None  # dp ranks differ
        held = list(by_tp.values())
        if any(not share.boxes or not share.experts or len(share.slots) for share in held):
            return None
        if all(share == held[0] for share in held):
            if family.role == "expert" and layout.ep > 1:
                return None
            if len(held[0].experts) != (family.experts or 1):
                return None
            return (*axes, ReplicatedAxis("tp")) if layout.tp > 1 else tuple(axes)
        dim = family.cut_dim
        all_experts = tuple(range(family.experts or 1))
        if all(share.experts == all_experts for share in held):
            if family.expert_dim is not None and layout.ep > 1:
                if layout.ep != layout.tp or len(held[0].boxes) > 1:
                    return None
                return (*axes, SplitAxis("ep", family.expert_dim))
            boxes = [box for share in held for box in share.boxes]
            if dim is None or len(set(boxes)) < len(boxes):
                return None
            return (*axes, SplitAxis("tp", dim))
        if family.experts and layout.ep == layout.tp:
            owned = [expert for share in held for expert in share.experts]
            if len(set(owned)) == len(owned):
                return (*axes, OwnershipAxis("ep"), OwnershipAxis("tp"))
        return None

    def _kind_row(self, family: TensorFamily, held: _Held) -> int:
        padded = None
        if family.role in ("embedding", "head") and len(family.shape) == 2:
            rows = self.layout.padded_rows(family.shape[0])
            if rows != family.shape[0]:
                padded = (rows, *family.shape[1:])
        sections = _sections(family.parts, _section_dim(family)) if family.fused else None
        slotted = any(len(share.slots) for share in held.shares.values())
        base = (family.dtype, family.itemsize, LAYOUT_FINGERPRINT)
        kind: TensorKind
        if held.axes is not None and not (padded or sections or family.block_shape or slotted):
            kind = TensorKind(*base, held.axes)
        else:
            kind = ExtendedKind(
                *base,
                held.axes or (),
                owned=held.axes is None,
                padded_shape=padded,
                sections=sections,
                block_shape=family.block_shape,
            )
        if kind not in self.kind_rows:
            self.kind_rows[kind] = len(self.kinds)
            self.kinds.append(kind)
        return self.kind_rows[kind]

    def finish(self, shuffle: Optional[int]) -> tuple[TensorColumns, FragmentColumns]:
        tensors = {name: numpy.concatenate(arrays) for name, arrays in self.tensors.items()}
        fragments = {name: numpy.concatenate(arrays) for name, arrays in self.fragments.items()}
        fragments["alias_group_of"] = numpy.concatenate(self.aliases)
        scale_of = numpy.full(len(self.names), -1)
        for family, first_row in self.scale_rows:
            rows = numpy.arange(len(family.names()))
            scale_of[first_row + rows] = self.first_row[family.scales, family.layers] + rows
        tensors["scale_of"] = scale_of
        names = self.names
        if shuffle is not None:
            names, tensors, fragments = _shuffled(names, tensors, fragments, shuffle)
        return (
            TensorColumns(tensor_ids=names, kinds=self.kinds, **tensors),
            FragmentColumns(
                tensor_of=fragments["tensor_of"],
                participant_of=fragments["participant_of"],
                offsets=fragments["offsets"],
                shapes=fragments["shapes"],
                pipeline_stage_ids=fragments["stages"],
                alias_groups=self.alias_groups,
                alias_group_of=fragments["alias_group_of"],
                slots=fragments["slots"],
            ),
        )


def _section_dim(family: TensorFamily) -> int:
    if family.cut_dim is not None:
        return family.cut_dim
    return 1 if family.expert_dim == 0 else 0


def _sections(parts: Sequence[Part], dim: int) -> Sections:
    made, begin = [], 0
    for part in parts:
        made.append(Section(part.name, begin, begin + part.extent))
        begin += part.extent
    return Sections(dim, tuple(made))


def _slots(family: TensorFamily, share: Share) -> numpy.ndarray:
    """One slot for each (expert, box); -1 where slots mean nothing."""
    experts, boxes = len(share.experts), len(share.boxes)
    if not len(share.slots):
        return numpy.full(experts * boxes, -1)
    slots = numpy.array(share.slots)
    return numpy.repeat(slots, boxes) if family.expert_dim is None else slots


def _scale_box(weight: TensorFamily, box: Box) -> Box:
    """The scales of all blocks that the weight's box touches. Blocks begin anew in each part."""
    offset, shape = [], []
    for dim, (begin, extent) in enumerate(zip(*box, strict=True)):
        size = weight.block_shape[dim]
        part_begin = scale_begin = 0
        if weight.fused and dim == _section_dim(weight):
            for part in weight.parts:
                if begin < part_begin + part.extent:
                    break
                part_begin += part.extent
                scale_begin += -(-part.extent // size)
        first = (begin - part_begin) // size
        offset.append(scale_begin + first)
        shape.append(-(-(begin - part_begin + extent) // size) - first)
    return tuple(offset), tuple(shape)


def _cells(shares: Mapping[int, Share]) -> dict[int, Share]:
    """Boxes that overlap without being equal (shared scales) cut along each other's edges."""
    held = {str(p): share.boxes for p, share in shares.items()}
    boxes = {box for group in held.values() for box in group}
    if not _partly_overlap(boxes):
        return dict(shares)
    _, cells = own_boxes(held)
    return {p: share._replace(boxes=tuple(cells[str(p)])) for p, share in shares.items()}


def _partly_overlap(boxes: set[Box]) -> bool:
    """Whether two different boxes share elements; they differ along one or two dimensions."""
    ordered = sorted(boxes)
    for i, (offset, shape) in enumerate(ordered):
        for other_offset, other_shape in ordered[i + 1 :]:
            if other_offset and other_offset[0] >= offset[0] + shape[0]:
                break
            if all(
                a < b + n and b < a + m
                for a, m, b, n in zip(offset, shape, other_offset, other_shape, strict=True)
            ):
                return True
    return False


def _shuffled(
    names: list[str],
    tensors: dict[str, numpy.ndarray],
    fragments: dict[str, numpy.ndarray],
    seed: int,
) -> tuple[list[str], dict[str, numpy.ndarray], dict[str, numpy.ndarray]]:
    random = numpy.random.default_rng(seed)
    order = random.permutation(len(names))  # new row -> old row
    new_row = numpy.empty_like(order)
    new_row[order] = numpy.arange(len(order))
    ranks = tensors["ranks"]
    made = {key: column[order] for key, column in tensors.items() if key != "shapes"}
    made["shapes"] = _ragged(tensors["shapes"], ranks, order)
    made["scale_of"] = numpy.where(
        made["scale_of"] >= 0, new_row[made["scale_of"]], made["scale_of"]
    )
    fragment_ranks = ranks[fragments["tensor_of"]]
    fragment_order = random.permutation(len(fragment_ranks))
    moved = {
        key: _ragged(column, fragment_ranks, fragment_order)
        if key in ("offsets", "shapes")
        else column[fragment_order]
        for key, column in fragments.items()
    }
    moved["tensor_of"] = new_row[moved["tensor_of"]]
    return [names[row] for row in order], made, moved


def _ragged(flat: numpy.ndarray, lengths: numpy.ndarray, order: numpy.ndarray) -> numpy.ndarray:
    """A flat ragged column with its rows in `order`."""
    begins = numpy.cumsum(lengths) - lengths
    taken = lengths[order]
    ends = numpy.cumsum(taken)
    within = numpy.arange(ends[-1]) - numpy.repeat(ends - taken, taken)
    return flat[numpy.repeat(begins[order], taken) + within]
