"""Layouts: who holds what, as SGLang, vLLM, Megatron-Core and FSDP2 cut a model.

A layout answers one question for each family and rank: which experts, which boxes. Everything else
(sections, padding, owners, ids) follows in placements.py. The rules are those of the engines' own
sources; where an engine has several, the class says which. What an engine refuses to run is an
`UnsupportedLayout` here, with the engine's reason.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Optional

from mooncake.reshard.weight import ParallelRank

from .configurations import ModelConfiguration
from .families import CHECKPOINT, FUSED, Part, TensorFamily, tensor_families

__all__ = [
    "LAYOUTS",
    "EngineLayout",
    "Fsdp2",
    "Megatron",
    "Sglang",
    "Share",
    "UnsupportedLayout",
    "Vllm",
    "layout_named",
    "unsupported",
]

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offset, shape


class UnsupportedLayout(ValueError):
    """The engine does not run this model so."""


class Share(NamedTuple):
    """What one rank holds of each layer of a family.

    `experts` are logical experts, (0,) for a family without a tensor for each; `boxes` are the same
    for all of them. `slots`, where experts have places of their own: one for each expert, or for
    each box of a grouped tensor. An expert may be there twice.
    """

    experts: Sequence[int]
    boxes: Sequence[Box]
    slots: Sequence[int] = ()


@dataclass(frozen=True)
class EngineLayout:
    """Axis sizes and what all engines have in common.

    `draft`: holds the multi-token prediction layers, else leaves them out by name.
    `redundant_experts` are copies beyond one of each, on EP ranks of equally many slots; they begin
    as copies of the first experts, each in its place. `rebalanced`: each EP group has moved its
    experts to other slots since (a fixed shuffle), as expert load balancers do.
    """

    name: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    vocabulary: str = CHECKPOINT
    draft: bool = False
    redundant_experts: int = 0
    rebalanced: bool = False

    @property
    def engine(self) -> str:
        return type(self).__name__.lower()

    def check(self, model: ModelConfiguration) -> None:
        """UnsupportedLayout, with the reason, when the engine would refuse."""
        if self.ep > 1 and model.experts is None:
            raise UnsupportedLayout(f"{model.name} has no experts for EP{self.ep}")
        if self.redundant_experts:
            slots = model.experts.count + self.redundant_experts
            if slots % self.ep:
                raise UnsupportedLayout(f"{slots} expert slots do not divide by EP{self.ep}")
        self.stage_cuts(model)

    def ranks(self) -> list[ParallelRank]:
        """All participants."""
        return [
            ParallelRank(dp=dp, tp=tp, pp=pp, ep=self.expert_rank(dp, tp))
            for dp in range(self.dp)
            for pp in range(self.pp)
            for tp in range(self.tp)
        ]

    def expert_rank(self, dp: int, tp: int) -> int:
        raise NotImplementedError

    def expert_group(self, rank: ParallelRank) -> int:
        """The group of EP ranks that balances its experts by itself."""
        return 0

    def stage_cuts(self, model: ModelConfiguration) -> tuple[int, ...]:
        """pp + 1 layer numbers; stage s has the layers [cuts[s], cuts[s + 1])."""
        raise NotImplementedError

    def stage_of(self, model: ModelConfiguration, family: TensorFamily, layer: int) -> int:
        if family.role == "vision" or (not family.layers and not family.last_stage):
            return 0
        if not family.layers or family.draft:
            return self.pp - 1
        return next(s for s, end in enumerate(self.stage_cuts(model)[1:]) if layer < end)

    def padded_rows(self, rows: int) -> int:
        """Allocated rows of an embedding or head of so many."""
        return rows

    def share(self, model: ModelConfiguration, family: TensorFamily, rank: ParallelRank) -> Share:
        """What `rank` holds of each layer that is on its stage."""
        raise NotImplementedError

    # --- what the engines' answers are made of -----------------------------------------------

    def _cut(self, family: TensorFamily, size: int, index: int) -> list[Box]:
        """The boxes of rank `index` of `size` that cut the family's parts."""
        if not family.fused and (family.cut_dim is None or size == 1):
            return [((0,) * len(family.shape), family.shape)]
        if family.cut_dim is None or size == 1:
            return _pieces(family, [(part, 0, part.extent) for part in family.parts])
        if family.role in ("embedding", "head"):
            rows = family.shape[0]
            share = -(-self.padded_rows(rows) // size)
            begin, end = min(rows, index * share), min(rows, (index + 1) * share)
            return _pieces(family, [(family.parts[0], begin, end)])
        return _pieces(
            family, [(part, *_unit_run(family, part, size, index)) for part in family.parts]
        )

    def _expert_run(self, count: int, rank: ParallelRank) -> Sequence[int]:
        """Logical experts in the slots of the rank."""
        slots = [slot % count for slot in range(count + self.redundant_experts)]
        if self.rebalanced:
            random.Random(self.expert_group(rank)).shuffle(slots)
        base, more = divmod(len(slots), self.ep)
        begin = rank.ep * base + min(rank.ep, more)
        return slots[begin : begin + base + (rank.ep < more)]

    def _expert_share(
        self, model: ModelConfiguration, family: TensorFamily, rank: ParallelRank, boxes: list[Box]
    ) -> Share:
        """The rank's experts, each in `boxes` (of all experts, where grouped)."""
        run = self._expert_run(model.experts.count, rank)
        moved = self.redundant_experts > 0 or self.rebalanced
        if family.expert_dim is None:
            return Share(run, boxes, range(len(run)) if moved else ())
        if moved:
            slots = [slot for slot in range(len(run)) for _ in boxes]
            return Share((0,), [_expert_box(box, e, 1) for e in run for box in boxes], slots)
        return Share((0,), [_expert_box(box, run[0], len(run)) for box in boxes] if run else [])


def _pieces(family: TensorFamily, runs: list[tuple[Part, int, int]]) -> list[Box]:
    """Boxes of the cut dimension's runs: (part, begin, end) within the part."""
    dim = 0 if family.cut_dim is None else family.cut_dim
    boxes = []
    part_begin = 0
    for part, begin, end in runs:
        if begin < end:
            offset, shape = [0] * len(family.shape), list(family.shape)
            offset[dim], shape[dim] = part_begin + begin, end - begin
            boxes.append((tuple(offset), tuple(shape)))
        part_begin += part.extent
    return boxes


def _unit_run(family: TensorFamily, part: Part, size: int, index: int) -> tuple[int, int]:
    """Rows [begin, end) of the part that rank `index` of `size` holds."""
    unit = part.extent // part.units
    if part.units % size == 0:
        share = part.extent // size
        return index * share, (index + 1) * share
    if part.replicable and size % part.units == 0:
        held = index * part.units // size
        return held * unit, (held + 1) * unit
    what = f"{part.units} {'KV heads' if part.replicable else 'units'}"
    raise UnsupportedLayout(f"{what} of {family.pattern} do not divide by TP{size}")


def _expert_box(box: Box, begin: int, count: int) -> Box:
    return (begin, *box[0][1:]), (count, *box[1][1:])


def _even_cuts(layers: int, stages: int) -> list[int]:
    return [layers // stages] * stages


def _boundaries(counts: Sequence[int]) -> tuple[int, ...]:
    cuts = [0]
    for count in counts:
        cuts.append(cuts[-1] + count)
    return tuple(cuts)


class _Serving(EngineLayout):
    """vLLM and SGLang: embeddings padded to multiples of 64, draft layers left out."""

    def check(self, model: ModelConfiguration) -> None:
        super().check(model)
        if self.pp > model.layers:
            raise UnsupportedLayout(f"{model.layers} layers do not fill PP{self.pp}")

    def padded_rows(self, rows: int) -> int:
        # Padded to 64, then to a multiple of the ranks, as VocabParallelEmbedding does.
        rows = -(-rows // 64) * 64
        return -(-rows // self.tp) * self.tp


@dataclass(frozen=True)
class Vllm(_Serving):
    """vLLM: tp x dp ranks; EP, where on, runs over all of them (ep == tp * dp), without TP inside.

    Without EP the experts are cut by TP over all tp * dp ranks. Experts are placed linearly;
    redundant ones (EPLB) start as copies of the first. The vision tower is cut by TP, or held
    whole by all (`mm_encoder_tp_mode="data"`).
    """

    vision_data_parallel: bool = False

    def expert_rank(self, dp: int, tp: int) -> int:
        return dp * self.tp + tp if self.ep > 1 else 0

    def check(self, model: ModelConfiguration) -> None:
        super().check(model)
        if self.ep not in (1, self.tp * self.dp):
            raise UnsupportedLayout(f"vLLM's EP is TP x DP = {self.tp * self.dp}, got {self.ep}")

    def stage_cuts(self, model: ModelConfiguration) -> tuple[int, ...]:
        # get_pp_indices: what is left over goes to the stages before the last.
        counts = _even_cuts(model.layers, self.pp)
        left = model.layers % self.pp
        for i in range(2, left + 2):
            counts[-i] += 1
        return _boundaries(counts)

    def share(self, model: ModelConfiguration, family: TensorFamily, rank: ParallelRank) -> Share:
        if family.role == "vision" and self.vision_data_parallel:
            return Share((0,), self._cut(family, 1, 0))
        if family.role != "expert":
            return Share((0,), self._cut(family, self.tp, rank.tp))
        if self.ep > 1:
            return self._expert_share(model, family, rank, self._cut(family, 1, 0))
        size, index = self.tp * self.dp, rank.dp * self.tp + rank.tp
        return Share(range(family.experts or 1), self._cut(family, size, index))


@dataclass(frozen=True)
class Sglang(_Serving):
    """SGLang: EP inside TP (an expert is cut by tp / ep ranks); DP attention on the TP ranks.

    With `attention_dp` d the attention is cut by tp / d ranks and held d times; embeddings are then
    whole on every rank, the head is cut by all.
    """

    attention_dp: int = 1

    def expert_rank(self, dp: int, tp: int) -> int:
        return tp // (self.tp // self.ep)

    def expert_group(self, rank: ParallelRank) -> int:
        return rank.dp  # replicas know nothing of each other

    def check(self, model: ModelConfiguration) -> None:
        super().check(model)
        for size, what in ((self.ep, "EP"), (self.attention_dp, "attention DP")):
            if self.tp % size:
                raise UnsupportedLayout(f"SGLang's {what} divides TP{self.tp}, got {size}")

    def stage_cuts(self, model: ModelConfiguration) -> tuple[int, ...]:
        # The last stage takes what is left over.
        counts = _even_cuts(model.layers, self.pp)
        counts[-1] += model.layers % self.pp
        return _boundaries(counts)

    def share(self, model: ModelConfiguration, family: TensorFamily, rank: ParallelRank) -> Share:
        if family.role == "expert":
            inner = self.tp // self.ep
            boxes = self._cut(family, inner, rank.tp % inner)
            return self._expert_share(model, family, rank, boxes)
        if self.attention_dp > 1 and family.role == "attention":
            size = self.tp // self.attention_dp
            return Share((0,), self._cut(family, size, rank.tp % size))
        if self.attention_dp > 1 and family.role == "embedding":
            return Share((0,), self._cut(family, 1, 0))
        return Share((0,), self._cut(family, self.tp, rank.tp))


@dataclass(frozen=True)
class Megatron(EngineLayout):
    """Megatron-Core: EP over the tp x dp ranks of a stage, each expert cut by `expert_tp` of them.

    QKV rows lie in memory by KV group (q, k, v of one group, then the next), so a rank has one
    fragment a group. Embeddings are padded to multiples of 128 x TP. Layers divide evenly over
    the stages, or the last stage has fewer (`decoder-last-pipeline-num-layers`). With `virtual_pp`
    v every stage has v runs of layers, in turn (the interleaved schedule). Vision towers are
    held whole by the first stage.
    """

    draft: bool = True
    expert_tp: int = 1
    virtual_pp: int = 1

    def expert_rank(self, dp: int, tp: int) -> int:
        return (dp * self.tp + tp) // self.expert_tp % self.ep

    def check(self, model: ModelConfiguration) -> None:
        super().check(model)
        if self.tp * self.dp % (self.ep * self.expert_tp):
            raise UnsupportedLayout(
                f"EP{self.ep} x expert TP{self.expert_tp} do not divide TP{self.tp} x DP{self.dp}"
            )
        if model.kv_heads % self.tp:
            raise UnsupportedLayout(
                f"{model.kv_heads} query groups do not divide by TP{self.tp} in Megatron-Core"
            )

    def stage_cuts(self, model: ModelConfiguration) -> tuple[int, ...]:
        if self.virtual_pp > 1 and model.layers % (self.pp * self.virtual_pp):
            raise UnsupportedLayout(
                f"{model.layers} layers do not divide by PP{self.pp} x {self.virtual_pp} runs"
            )
        each = -(-model.layers // self.pp)
        last = model.layers - each * (self.pp - 1)
        if last < 1:
            raise UnsupportedLayout(f"{model.layers} layers do not fill PP{self.pp}")
        return _boundaries([each] * (self.pp - 1) + [last])

    def stage_of(self, model: ModelConfiguration, family: TensorFamily, layer: int) -> int:
        if self.virtual_pp == 1 or not family.layers or family.draft or family.role == "vision":
            return super().stage_of(model, family, layer)
        return layer // (model.layers // (self.pp * self.virtual_pp)) % self.pp

    def padded_rows(self, rows: int) -> int:
        multiple = 128 * self.tp
        return -(-rows // multiple) * multiple

    def share(self, model: ModelConfiguration, family: TensorFamily, rank: ParallelRank) -> Share:
        if family.role == "vision":
            return Share((0,), self._cut(family, 1, 0))
        if family.role == "expert":
            index = (rank.dp * self.tp + rank.tp) % self.expert_tp
            boxes = self._cut(family, self.expert_tp, index)
            return self._expert_share(model, family, rank, boxes)
        boxes = self._cut(family, self.tp, rank.tp)
        if family.parts and family.parts[0].groups > 1:
            boxes = [piece for box in boxes for piece in _by_group(family, box)]
        return Share((0,), boxes)


def _by_group(family: TensorFamily, box: Box) -> list[Box]:
    """The box's rows, one piece for each KV group."""
    part, dim = family.parts[0], family.cut_dim
    size = part.extent // part.groups
    begin, end = box[0][dim], box[0][dim] + box[1][dim]
    cuts = [begin, *(c for c in range(0, part.extent, size) if begin < c < end), end]
    pieces = []
    for a, b in pairwise(cuts):
        offset, shape = list(box[0]), list(box[1])
        offset[dim], shape[dim] = a, b - a
        pieces.append((tuple(offset), tuple(shape)))
    return pieces


@dataclass(frozen=True)
class Fsdp2(EngineLayout):
    """FSDP2 (fully_shard): dimension 0 in chunks of ceil(rows / dp), the last ranks maybe empty.

    With `replicas` it is HSDP: dp / replicas shards, each held so many times. With tp the rows of
    a TP shard are cut again (torch's strided order). Experts are one grouped tensor of each layer,
    as in transformers 5, whose dimension 0 counts experts: in the checkpoint's vocabulary whole
    experts. Block scales follow their weights.
    """

    draft: bool = True
    replicas: int = 1

    def expert_rank(self, dp: int, tp: int) -> int:
        return 0

    def check(self, model: ModelConfiguration) -> None:
        super().check(model)
        if self.dp % self.replicas:
            raise UnsupportedLayout(f"{self.replicas} replicas do not divide DP{self.dp}")
        if model.fp8_block and self.tp > 1:
            raise UnsupportedLayout("FSDP2 with TP is for weights without block scales")

    def stage_cuts(self, model: ModelConfiguration) -> tuple[int, ...]:
        return 0, model.layers

    def share(self, model: ModelConfiguration, family: TensorFamily, rank: ParallelRank) -> Share:
        shards = self.dp // self.replicas
        shard = rank.dp % shards
        if family.role == "expert":
            begin, end = _chunk(model.experts.count, shards, shard)
            boxes = self._cut(family, self.tp, rank.tp)
            if family.expert_dim is None:
                return Share(range(begin, end), boxes)
            boxes = [_expert_box(box, begin, end - begin) for box in boxes] if begin < end else []
            return Share((0,), boxes)
        boxes = self._cut(family, self.tp, rank.tp)
        return Share((0,), _chunk_of_boxes(boxes, shards, shard))


def _chunk(extent: int, pieces: int, index: int) -> tuple[int, int]:
    """torch.chunk's [begin, end)."""
    size = -(-extent // pieces)
    return min(extent, index * size), min(extent, (index + 1) * size)


def _chunk_of_boxes(boxes: list[Box], pieces: int, index: int) -> list[Box]:
    """The chunk of dimension 0 of a local buffer that holds the boxes one after the other."""
    begin, end = _chunk(sum(shape[0] for _, shape in boxes), pieces, index)
    held = []
    row = 0  # of the local buffer
    for offset, shape in boxes:
        a, b = max(begin, row), min(end, row + shape[0])
        if a < b:
            held.append(((offset[0] + a - row, *offset[1:]), (b - a, *shape[1:])))
        row += shape[0]
    return held


LAYOUTS: tuple[EngineLayout, ...] = (
    Sglang("sglang-tp8", tp=8),
    Sglang("sglang-tp16", tp=16),  # more ranks than KV heads
    Sglang("sglang-tp4-pp2", tp=4, pp=2),
    Sglang("sglang-tp8-ep8", tp=8, ep=8),
    Sglang("sglang-tp8-ep4", tp=8, ep=4),  # each expert cut by two
    Sglang("sglang-tp8-ep8-dp-attention", tp=8, ep=8, attention_dp=8),
    Sglang("sglang-tp8-ep8-redundant", tp=8, ep=8, redundant_experts=16),
    Sglang("sglang-tp4-ep4-dp2-rebalanced", tp=4, ep=4, dp=2, redundant_experts=8, rebalanced=True),
    Sglang("sglang-tp8-draft", tp=8, draft=True),
    Vllm("vllm-tp4", tp=4),
    Vllm("vllm-tp2-pp4", tp=2, pp=4),
    Vllm("vllm-tp2-dp4-ep8", tp=2, dp=4, ep=8),
    Vllm("vllm-tp4-dp2", tp=4, dp=2, vision_data_parallel=True),
    Vllm("vllm-tp4-fused", tp=4, vocabulary=FUSED),
    Vllm("vllm-tp16-fused", tp=16, vocabulary=FUSED, vision_data_parallel=True),
    Vllm("vllm-tp2-dp4-ep8-fused", tp=2, dp=4, ep=8, vocabulary=FUSED),
    Sglang("sglang-tp8-ep8-redundant-fused", tp=8, ep=8, redundant_experts=16, vocabulary=FUSED),
    Vllm(
        "vllm-tp2-dp2-ep4-rebalanced-fused",
        tp=2,
        dp=2,
        ep=4,
        redundant_experts=8,
        rebalanced=True,
        vocabulary=FUSED,
    ),
    Sglang("sglang-tp2-pp2-fused", tp=2, pp=2, vocabulary=FUSED),
    Megatron("megatron-tp4-pp2", tp=4, pp=2),
    Megatron("megatron-tp2-pp2-dp2", tp=2, pp=2, dp=2, expert_tp=2),
    Megatron("megatron-tp2-pp2-interleaved", tp=2, pp=2, virtual_pp=2, expert_tp=2),
    Megatron("megatron-tp2-pp2-dp4-ep4", tp=2, pp=2, dp=4, ep=4, expert_tp=2),
    Megatron("megatron-tp2-dp4-ep8", tp=2, dp=4, ep=8),
    Fsdp2("fsdp2-dp8", dp=8),
    Fsdp2("fsdp2-dp24", dp=24),  # rows do not divide; ranks with nothing
    Fsdp2("fsdp2-hsdp-2x4", dp=8, replicas=2),
    Fsdp2("fsdp2-dp4-tp2", dp=4, tp=2),
)


def layout_named(name: str) -> EngineLayout:
    """The layout of that name. ValueError lists them."""
    for layout in LAYOUTS:
        if name == layout.name:
            return layout
    raise ValueError(f"no layout {name}; there are: {', '.join(known.name for known in LAYOUTS)}")


def unsupported(model: ModelConfiguration, layout: EngineLayout) -> Optional[str]:
    """Why the engine does not run `model` so; None when it does."""
    try:
        layout.check(model)
        for family in tensor_families(model, layout.vocabulary):
            layout.share(model, family, layout.ranks()[0])
    except UnsupportedLayout as error:
        return str(error)
    return None
