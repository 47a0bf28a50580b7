"""Parallel layouts by rule: which dimension of which tensor is cut for TP, who owns which layer.

A `ParallelLayout` says how an engine cuts a model; `layout_placement` applies it to the tensors of
one model and gives the placement. The rules name tensors by regular expression, because only the
framework knows what its names mean; nothing is guessed from a name that no rule matches.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ..weight import (
    OwnershipAxis,
    ParallelRank,
    ParallelTopology,
    PlacementFragment,
    ReplicatedAxis,
    SplitAxis,
    TensorDescriptor,
    TopologyParticipant,
    WeightPlacementManifest,
)
from ..weight.extended import ExtendedTensor, OwnedBox
from ..weight.management import WeightIdentity

__all__ = ["ParallelLayout", "TensorInfo", "TensorRule", "balanced_cuts", "layout_placement"]


@dataclass(frozen=True)
class TensorInfo:
    """Global shape (elements), dtype name and bytes per element of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int

    @property
    def nbytes(self) -> int:
        count = self.itemsize
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True)
class TensorRule:
    """How the tensors whose whole name matches `pattern` are held.

    `tp_dim` is the dimension that TP cuts (None: every TP rank holds all of it). `cuts` gives the
    boundaries explicitly, tp + 1 ascending offsets from 0 to the extent; without it the pieces
    differ by at most one element, larger ones first; ranks beyond the extent hold nothing. With
    `blocks` the dimension is cut between so many equal pieces only (KV heads); where they are fewer
    than the ranks, consecutive ranks hold the same one. `stage` pins the tensors to a pipeline
    stage (negative counts from the last). With `expert=True` the pattern's first group is the
    expert's number, and whole experts belong to the ranks in contiguous runs; such a tensor is one
    expert's own allocation and is not cut.
    """

    pattern: str
    tp_dim: Optional[int] = None
    cuts: Optional[tuple[int, ...]] = None
    stage: Optional[int] = None
    expert: bool = False
    blocks: Optional[int] = None


@dataclass(frozen=True)
class ParallelLayout:
    """tp x pp x dp ranks; with `ep` > 1 expert parallelism runs on the tp ranks (ep == tp).

    The first rule whose pattern matches a tensor's whole name holds; a tensor that no rule matches
    is replicated over TP. `layer_pattern`'s first group is the layer number: layers go to the
    pipeline stages in contiguous runs; tensors without one go to stage 0 unless their rule says
    otherwise. `experts` is the number of experts, needed with expert rules.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    rules: tuple[TensorRule, ...] = ()
    layer_pattern: str = r".*\blayers?\.(\d+)\..*"
    experts: int = 0
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for axis in ("tp", "pp", "dp", "ep"):
            size = getattr(self, axis)
            if type(size) is not int or size < 1:
                raise ValueError(f"{axis} must be an integer of at least 1, got {size!r}")
        if self.ep not in (1, self.tp):
            raise ValueError(
                f"expert parallelism shares the tp ranks: ep must be 1 or {self.tp}, got {self.ep}"
            )

    def __str__(self) -> str:
        if self.name:
            return self.name
        axes = [f"{axis.upper()}{getattr(self, axis)}" for axis in ("tp", "pp", "ep", "dp")]
        return " x ".join(text for text in axes if not text.endswith("1") or text == "TP1")

    def topology(self) -> ParallelTopology:
        return ParallelTopology(
            tp_size=self.tp,
            pp_size=self.pp,
            ep_size=self.ep,
            dp_size=self.dp,
            participants=[
                TopologyParticipant(participant_name(rank), rank) for rank in self.ranks()
            ],
        )

    def ranks(self) -> list[ParallelRank]:
        return [
            ParallelRank(dp=dp, tp=tp, pp=pp, ep=tp if self.ep > 1 else 0)
            for dp in range(self.dp)
            for pp in range(self.pp)
            for tp in range(self.tp)
        ]

    def rule_of(self, tensor_id: str) -> tuple[Optional[TensorRule], Optional[re.Match]]:
        for rule in self.rules:
            match = re.fullmatch(rule.pattern, tensor_id)
            if match:
                return rule, match
        return None, None

    def layer_of(self, tensor_id: str) -> Optional[int]:
        match = re.fullmatch(self.layer_pattern, tensor_id)
        return int(match.group(1)) if match else None


def participant_name(rank: ParallelRank) -> str:
    return f"dp{rank.dp}-pp{rank.pp}-tp{rank.tp}"


def balanced_cuts(extent: int, pieces: int) -> tuple[int, ...]:
    """pieces + 1 offsets cutting 0..extent into parts that differ by at most 1, larger first."""
    base, larger = divmod(extent, pieces)
    return tuple(base * i + min(i, larger) for i in range(pieces + 1))


def layout_placement(
    tensors: Mapping[str, TensorInfo],
    layout: ParallelLayout,
    identity: WeightIdentity,
    *,
    placement_set_id: str = "layout",
    layout_fingerprint: str = "row-major-v1",
    aliases: Iterable[Sequence[str]] = (),
) -> WeightPlacementManifest:
    """The placement of `tensors` under `layout`. `aliases` are groups of names of one tensor.

    A tensor that several tp ranks hold alike, or some hold nothing of, takes the extended form.
    ValueError names the tensor and the reason when a rule cannot be applied: a dimension it does
    not have, cuts that do not fit.
    """
    layers = {layout.layer_of(name) for name in tensors} - {None}
    stage_cuts = balanced_cuts(max(layers) + 1 if layers else 1, layout.pp)
    groups = {name: tuple(sorted(group)) for group in aliases for name in group}
    descriptors = []
    fragments = []
    for name, info in sorted(tensors.items()):
        cut = _TensorCut(name, info, layout, stage_cuts)
        descriptors.append(cut.descriptor(layout_fingerprint))
        for rank in layout.ranks():
            box = cut.box_of(rank)
            if box is None:
                continue
            offset, shape = box
            nbytes = info.itemsize
            for extent in shape:
                nbytes *= extent
            fragments.append(
                PlacementFragment(
                    tensor_id=name,
                    global_offset=offset,
                    local_shape=shape,
                    nbytes=nbytes,
                    rank=rank,
                    pipeline_stage_id=rank.pp if layout.pp > 1 else None,
                    aliases=groups.get(name, ()),
                )
            )
    return WeightPlacementManifest.from_fragments(
        resource_id=identity.resource_id,
        revision=identity.revision,
        weight_generation=identity.weight_generation,
        placement_set_id=placement_set_id,
        topology=layout.topology(),
        tensors=descriptors,
        fragments=fragments,
    )


class _TensorCut:
    """One tensor under one layout: its axes, and its box on each rank."""

    def __init__(
        self, name: str, info: TensorInfo, layout: ParallelLayout, stage_cuts: Sequence[int]
    ) -> None:
        self.name = name
        self.info = info
        self.layout = layout
        rule, match = layout.rule_of(name)
        self.layer = layout.layer_of(name)
        self.stage = _stage(name, rule, self.layer, layout, stage_cuts)
        self.expert: Optional[int] = None
        self.expert_owner: Optional[int] = None
        self.dim: Optional[int] = None
        self.shares: Sequence[tuple[int, int]] = ()  # [begin, end) of each tp rank
        self.owned = False  # shares repeat or are empty: the extended form
        if rule is None:
            return
        if rule.expert:
            self._give_to_expert_owner(match)
        elif rule.tp_dim is not None:
            self._cut(rule)

    def _give_to_expert_owner(self, match: re.Match) -> None:
        self.expert = int(match.group(1))
        experts = self.layout.experts
        if self.expert >= experts:
            raise ValueError(
                f"{self.name} is expert {self.expert}, the layout has {experts} experts"
            )
        if self.layout.tp > 1:
            cuts = balanced_cuts(experts, self.layout.tp)
            self.expert_owner = next(i for i, end in enumerate(cuts[1:]) if self.expert < end)

    def _cut(self, rule: TensorRule) -> None:
        shape = self.info.shape
        if rule.tp_dim >= len(shape):
            raise ValueError(f"{self.name} has shape {shape}: there is no dimension {rule.tp_dim}")
        extent = shape[rule.tp_dim]
        tp = self.layout.tp
        if rule.blocks is not None:
            if rule.cuts is not None or not 1 <= rule.blocks <= extent:
                raise ValueError(
                    f"blocks of {self.name} must be from 1 to {extent} and without cuts, "
                    f"got {rule.blocks}"
                )
            blocks, edges = rule.blocks, balanced_cuts(extent, rule.blocks)
            if blocks < tp:
                shares = [edges[t * blocks // tp : t * blocks // tp + 2] for t in range(tp)]
            else:
                runs = itertools.pairwise(balanced_cuts(blocks, tp))
                shares = [(edges[first], edges[last]) for first, last in runs]
        else:
            cuts = rule.cuts if rule.cuts is not None else balanced_cuts(extent, tp)
            if len(cuts) != tp + 1 or cuts[0] != 0 or cuts[-1] != extent:
                raise ValueError(
                    f"cuts of {self.name} must be {tp + 1} offsets from 0 to {extent}, "
                    f"got {tuple(cuts)}"
                )
            if any(a > b for a, b in itertools.pairwise(cuts)):
                raise ValueError(f"cuts of {self.name} must ascend, got {tuple(cuts)}")
            shares = list(itertools.pairwise(cuts))
        if tp > 1:
            self.dim, self.shares = rule.tp_dim, [tuple(share) for share in shares]
            self.owned = len(set(self.shares)) < tp or any(a == b for a, b in self.shares)

    def descriptor(self, layout_fingerprint: str) -> TensorDescriptor:
        layout = self.layout
        fields: dict[str, Any] = {
            "tensor_id": self.name,
            "global_shape": self.info.shape,
            "dtype": self.info.dtype,
            "itemsize": self.info.itemsize,
            "layout_fingerprint": layout_fingerprint,
            "layer_id": self.layer,
            "expert_id": self.expert,
        }
        if self.owned:
            tiling = self._tiling()
            return ExtendedTensor(**fields, shard_dims=(), parallel_axes=(), ownership=(tiling,))
        axes: list = []
        if layout.dp > 1:
            axes.append(ReplicatedAxis("dp"))
        if layout.pp > 1:
            axes.append(OwnershipAxis("pp"))
        if self.expert is not None and layout.ep > 1:
            axes.append(OwnershipAxis("ep"))
        if layout.tp > 1:
            if self.dim is not None:
                axes.append(SplitAxis("tp", self.dim))
            elif self.expert_owner is not None:
                axes.append(OwnershipAxis("tp"))
            else:
                axes.append(ReplicatedAxis("tp"))
        return TensorDescriptor(
            **fields,
            shard_dims=() if self.dim is None else (self.dim,),
            parallel_axes=axes,
        )

    def _tiling(self) -> tuple[OwnedBox, ...]:
        owners: dict[tuple, list[str]] = {}
        for rank in self.layout.ranks():
            box = self.box_of(rank)
            if box is not None:
                owners.setdefault(box, []).append(participant_name(rank))
        return tuple(OwnedBox(*box, tuple(names)) for box, names in owners.items())

    def box_of(self, rank: ParallelRank) -> Optional[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(offset, shape) of the rank's share, None when it has none."""
        if rank.pp != self.stage:
            return None
        if self.expert_owner is not None and rank.tp != self.expert_owner:
            return None
        offset = [0] * len(self.info.shape)
        shape = list(self.info.shape)
        if self.dim is not None:
            begin, end = self.shares[rank.tp]
            if begin == end:
                return None
            offset[self.dim], shape[self.dim] = begin, end - begin
        return tuple(offset), tuple(shape)


def _stage(
    name: str,
    rule: Optional[TensorRule],
    layer: Optional[int],
    layout: ParallelLayout,
    stage_cuts: Sequence[int],
) -> int:
    if rule is not None and rule.stage is not None:
        stage = rule.stage if rule.stage >= 0 else layout.pp + rule.stage
        if not 0 <= stage < layout.pp:
            raise ValueError(f"stage of {name} must be below {layout.pp}, got {rule.stage}")
        return stage
    if layer is None:
        return 0
    return next(i for i, end in enumerate(stage_cuts[1:]) if layer < end)
