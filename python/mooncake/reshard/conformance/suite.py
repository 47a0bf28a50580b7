"""The conformance suite: what an exporter says of a model under a layout, against what holds.

An exporter is a framework's own code that makes placements. For each model and layout the suite
compares its placement with the reference (placements.py), element by element: the tensors, their
shapes and types, and what each rank holds how often. Then it plans between the exporter's placement
and the other layouts of the model, both ways, and runs the plans on an oracle. Whatever disagrees
is a `Finding` that names the tensor, the rank, the box, and both values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy

from mooncake.reshard.weight import (
    ParallelRank,
    WeightPlacementManifest,
    plan_placement_transfer,
    plan_placement_transfer_to_local_target,
    weight_placement_from_json,
    weight_placement_to_json,
)
from mooncake.reshard.weight.memory import memory_of

from .configurations import MODELS, ModelConfiguration, model_named
from .element_oracle import (
    box_text,
    index_bytes,
    missing_boxes,
    what_is_wrong_with_plan,
    what_is_wrong_with_regions,
)
from .layouts import LAYOUTS, Box, EngineLayout, layout_named, unsupported
from .placements import reference_placement

__all__ = ["ConformanceSuite", "Exporter", "Finding", "Report"]

# (model, layout) -> placement
Exporter = Callable[[ModelConfiguration, EngineLayout], WeightPlacementManifest]

# Element oracles take 8 bytes an element; beyond this the regions' boxes are compared instead.
_ELEMENTS_MAX = 4_000_000


@dataclass(frozen=True)
class Finding:
    """One disagreement. `rank` and `box` are texts, "" where they have no part in it."""

    check: str  # exporter, ranks, tensors, descriptor, boxes, copies, determinism, plan, content
    model: str
    layout: str
    expected: str
    got: str
    tensor: str = ""
    rank: str = ""
    box: str = ""

    def __str__(self) -> str:
        where = " ".join(text for text in (self.tensor, self.rank, self.box) if text)
        place = f"{self.model} {self.layout}: {self.check}"
        return f"{place}: {where}: expected {self.expected}, got {self.got}"


@dataclass
class Report:
    """What a run found. `skipped`: (model, layout, the engine's reason)."""

    findings: list[Finding] = field(default_factory=list)
    placements: int = 0
    plans: int = 0
    skipped: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings


class ConformanceSuite:
    """Models and layouts to check an exporter on.

    `models` default to the small versions of all published ones; `peers` is how many other layouts
    each one is planned with, both ways (None: all), drawn by `seed`. At most `findings_max` are
    kept for each model and layout.
    """

    def __init__(
        self,
        models: Optional[Iterable[ModelConfiguration]] = None,
        layouts: Iterable[EngineLayout] = LAYOUTS,
        *,
        peers: Optional[int] = 3,
        seed: int = 0,
        findings_max: int = 20,
    ) -> None:
        self.models = tuple(models if models is not None else (m.small() for m in MODELS))
        self.layouts = tuple(layouts)
        self.peers = peers
        self.seed = seed
        self.findings_max = findings_max
        self._references: dict[tuple[str, str], WeightPlacementManifest] = {}

    def run(
        self,
        exporter: Exporter = reference_placement,
        layouts: Optional[Iterable[EngineLayout]] = None,
    ) -> Report:
        """Every model under every layout (or these) that its engine runs it in."""
        report = Report()
        checked = self.layouts if layouts is None else tuple(layouts)
        for model in self.models:
            for layout in checked:
                reason = unsupported(model, layout)
                if reason:
                    report.skipped.append((model.name, layout.name, reason))
                else:
                    self.check(exporter, model, layout, report)
        return report

    def check(
        self,
        exporter: Exporter,
        model: ModelConfiguration | str,
        layout: EngineLayout | str,
        report: Optional[Report] = None,
    ) -> Report:
        """One model under one layout (or their names); adds to `report` where one is given."""
        model = model_named(model) if isinstance(model, str) else model
        layout = layout_named(layout) if isinstance(layout, str) else layout
        report = Report() if report is None else report
        found = _Findings(model, layout, self.findings_max)
        try:
            placement = exporter(model, layout)
            again = exporter(model, layout)
        except Exception as error:  # the exporter is the caller's: whatever it raises is a finding
            got = f"{type(error).__name__}: {error}"
            report.findings.append(Finding("exporter", model.name, layout.name, "a placement", got))
            return report
        report.placements += 1
        if placement.digest != again.digest:
            found.add("determinism", f"digest {placement.digest} again", again.digest)
        read = weight_placement_from_json(weight_placement_to_json(placement))
        if read.digest != placement.digest:
            found.add("determinism", f"digest {placement.digest} from its JSON", read.digest)
        reference = self._reference(model, layout)
        if placement.geometry_digest != reference.geometry_digest:
            found.compare(reference, placement)
        report.plans += self._plan(placement, model, layout, found)
        report.findings += found.all
        return report

    def check_content(
        self,
        placement: WeightPlacementManifest,
        participant_id: str,
        tensors: Mapping[str, Any],
    ) -> list[Finding]:
        """Whether a rank's tensors hold `index_bytes` of their boxes: for a framework's own loader.

        `tensors` as in `bind_tensors`: by tensor id, or by placement_fragment_id where a rank has
        several fragments of one. Any dtype; the bytes are compared.
        """
        part = next((p for p in placement.parts if p.participant_id == participant_id), None)
        if part is None:
            raise ValueError(f"unknown participant: {participant_id}")
        descriptors = {tensor.tensor_id: tensor for tensor in part.tensors}
        findings = []
        for fragment in part.fragments:
            tensor = tensors.get(fragment.fragment_id, tensors.get(fragment.tensor_id))
            if fragment.nbytes == 0:
                continue
            box = (fragment.global_offset, fragment.local_shape)
            place = {
                "tensor": fragment.tensor_id,
                "rank": participant_id,
                "box": box_text(*box),
            }
            about = ("content", placement.resource_id, placement.placement_set_id)
            if tensor is None:
                findings.append(Finding(*about, "a tensor", "none", **place))
                continue
            got = _bytes_of(tensor)
            descriptor = descriptors[fragment.tensor_id]
            whole = descriptor.global_shape
            expected = index_bytes(fragment.tensor_id, whole, descriptor.itemsize, box)
            if got.shape != expected.shape:
                text = [str(a.shape[:-1]) + f" of {a.shape[-1]} bytes" for a in (expected, got)]
                findings.append(Finding(*about, *text, **place))
                continue
            differ = numpy.argwhere((got != expected).any(axis=-1))
            if len(differ):
                at = tuple(int(i) for i in differ[0])
                element = tuple(int(o + i) for o, i in zip(box[0], at, strict=True))
                findings.append(
                    Finding(
                        *about,
                        f"element {element} = {expected[at].tobytes().hex()}",
                        f"{got[at].tobytes().hex()} ({len(differ)} elements differ)",
                        **place,
                    )
                )
        return findings

    # --- plans -------------------------------------------------------------------------------

    def _reference(
        self, model: ModelConfiguration, layout: EngineLayout
    ) -> WeightPlacementManifest:
        key = (model.name, layout.name)
        if key not in self._references:
            self._references[key] = reference_placement(model, layout)
        return self._references[key]

    def _plan(
        self,
        placement: WeightPlacementManifest,
        model: ModelConfiguration,
        layout: EngineLayout,
        found: _Findings,
    ) -> int:
        """Plans with the peers, both ways; how many."""
        peers = [
            other
            for other in self.layouts
            if other.vocabulary == layout.vocabulary and unsupported(model, other) is None
        ]
        if self.peers is not None and len(peers) > self.peers:
            chooser = random.Random(f"{self.seed} {model.name} {layout.name}")
            peers = chooser.sample(peers, self.peers)
        plans = 0
        for peer in peers:
            other = self._reference(model, peer)
            for source, target, text in (
                (placement, other, f"{layout.name} -> {peer.name}"),
                (other, placement, f"{peer.name} -> {layout.name}"),
            ):
                if set(source.omitted_tensors) - set(target.omitted_tensors):
                    continue  # the target needs draft layers that the source leaves out
                plans += 1
                self._run(source, target, text, found)
        return plans

    def _run(
        self,
        source: WeightPlacementManifest,
        target: WeightPlacementManifest,
        text: str,
        found: _Findings,
    ) -> None:
        elements = sum(numpy.prod(tensor.global_shape, dtype=object) for tensor in target.tensors)
        participant = None
        try:
            if elements <= _ELEMENTS_MAX:
                plan = plan_placement_transfer(source, target)
                wrong = what_is_wrong_with_plan(plan)
            else:  # one rank of a large model, without elements
                part = max(target.parts, key=lambda part: len(part.fragments))
                participant = part.participant_id
                plan = plan_placement_transfer_to_local_target(source, target, participant)
                wrong = what_is_wrong_with_regions(plan, participant)
        except ValueError as error:
            found.add("plan", text, str(error))
            return
        for fault in wrong:
            found.add(
                "content",
                fault.expected,
                f"{fault.got} ({text})",
                tensor=fault.tensor,
                box=fault.box,
                rank=participant or "",
            )


class _Findings:
    """The findings about one model under one layout."""

    def __init__(self, model: ModelConfiguration, layout: EngineLayout, limit: int) -> None:
        self._about = (model.name, layout.name)
        self._limit = limit
        self.all: list[Finding] = []

    def add(self, check: str, expected: Any, got: Any, **place: str) -> None:
        if len(self.all) < self._limit:
            self.all.append(Finding(check, *self._about, str(expected), str(got), **place))

    def compare(
        self, reference: WeightPlacementManifest, placement: WeightPlacementManifest
    ) -> None:
        """Every way in which the placement says something else than the reference."""
        ranks = {p.rank for p in reference.topology.participants}
        got_ranks = {p.rank for p in placement.topology.participants}
        for rank in sorted(ranks ^ got_ranks, key=_rank_key):
            there = rank in got_ranks
            self.add("ranks", *_presence(not there), rank=_rank_text(rank))
        omitted, got_omitted = set(reference.omitted_tensors), set(placement.omitted_tensors)
        for name in sorted(omitted ^ got_omitted):
            texts = ("left out by name", "not")
            self.add("tensors", *(texts if name in omitted else texts[::-1]), tensor=name)
        expected = {tensor.tensor_id: tensor for tensor in reference.tensors}
        got = {tensor.tensor_id: tensor for tensor in placement.tensors}
        for name in sorted(expected.keys() ^ got.keys()):
            self.add("tensors", *_presence(name in expected), tensor=name)
        alike = []
        for name in sorted(expected.keys() & got.keys()):
            differ = _descriptor_differences(expected[name], got[name])
            for fieldname, values in differ.items():
                self.add("descriptor", *(f"{fieldname} {v}" for v in values), tensor=name)
            if "global_shape" not in differ:
                alike.append(name)
        self._compare_boxes(reference, placement, set(alike))

    def _compare_boxes(
        self,
        reference: WeightPlacementManifest,
        placement: WeightPlacementManifest,
        names: set[str],
    ) -> None:
        expected, got = _boxes_by_rank(reference), _boxes_by_rank(placement)
        for key in sorted(expected.keys() | got.keys(), key=lambda k: (k[0], _rank_key(k[1]))):
            wanted, there = expected.get(key, []), got.get(key, [])
            if key[0] not in names or sorted(wanted) == sorted(there):
                continue
            place = {"tensor": key[0], "rank": _rank_text(key[1])}
            there_text = ", ".join(box_text(*box) for box in sorted(set(there))) or "nothing"
            wanted_text = ", ".join(box_text(*box) for box in sorted(set(wanted))) or "nothing"
            for box in missing_boxes(wanted, there):
                self.add("boxes", wanted_text, there_text, box=box_text(*box), **place)
            for box in missing_boxes(there, wanted):
                self.add("boxes", wanted_text, there_text, box=box_text(*box), **place)
            counts = [_elements(boxes) for boxes in (wanted, there)]
            if counts[0] != counts[1] and set(wanted) and set(there):
                texts = [f"{count} elements" for count in counts]
                self.add("copies", *texts, **place)


def _presence(expected: bool) -> tuple[str, str]:
    return ("there", "missing") if expected else ("none", "one")


def _elements(boxes: Sequence[Box]) -> int:
    return sum(int(numpy.prod(shape, dtype=numpy.int64)) for _, shape in boxes)


def _rank_key(rank: ParallelRank) -> tuple[int, int, int, int]:
    return rank.dp, rank.pp, rank.ep, rank.tp


def _rank_text(rank: ParallelRank) -> str:
    return f"dp{rank.dp} pp{rank.pp} ep{rank.ep} tp{rank.tp}"


def _boxes_by_rank(
    placement: WeightPlacementManifest,
) -> dict[tuple[str, ParallelRank], list[Box]]:
    held: dict[tuple[str, ParallelRank], list[Box]] = {}
    for fragment in placement.fragments:
        if fragment.nbytes:
            box = (fragment.global_offset, fragment.local_shape)
            held.setdefault((fragment.tensor_id, fragment.rank), []).append(box)
    return held


def _descriptor_differences(expected: Any, got: Any) -> dict[str, tuple[Any, Any]]:
    """field -> both values, of what a plan needs to agree."""
    fields = ("global_shape", "dtype", "itemsize", "layout_fingerprint")
    fields += ("sections", "block_scales", "packing")
    values: Iterator = (
        (name, (getattr(expected, name, None), getattr(got, name, None))) for name in fields
    )
    return {name: pair for name, pair in values if pair[0] != pair[1]}


def _bytes_of(tensor: Any) -> numpy.ndarray:
    """The tensor's bytes as uint8 of (*shape, itemsize), whatever its strides."""
    import ctypes

    memory = memory_of(tensor)
    if memory.nbytes == 0:
        return numpy.zeros((*memory.shape, memory.itemsize), numpy.uint8)
    span = memory.itemsize + sum(
        (extent - 1) * stride
        for extent, stride in zip(memory.shape, memory.strides_bytes, strict=True)
    )
    flat = numpy.frombuffer((ctypes.c_uint8 * span).from_address(memory.address), numpy.uint8)
    return numpy.lib.stride_tricks.as_strided(
        flat, (*memory.shape, memory.itemsize), (*memory.strides_bytes, 1)
    ).copy()
