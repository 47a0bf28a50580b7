"""Logical transfer plans: which bytes of which source fragment fill which bytes of which target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Optional, Union

from mooncake import _core
from mooncake.reshard.contracts import (
    ParticipantId,
    PlacementFragmentId,
    PlacementId,
    ResourceId,
    RevisionId,
)
from mooncake.reshard.lazy_tuple import LazyTuple
from mooncake.reshard.weight._planner.regions import LogicalTransferOperation, TransferRegion
from mooncake.reshard.weight.placement import WeightPlacementManifest
from mooncake.reshard.weight.storage_manifest import (
    StoredManifestIdentity,
    WeightManifest,
    validate_weight_manifest_snapshot,
)
from mooncake.reshard.weight.types import ParallelRank, TensorDescriptor

__all__ = [
    "LogicalTransferOperation",
    "LogicalTransferPlan",
    "PipelineRouteGroup",
    "PlacementExecutorPlan",
    "PlanningLimits",
    "TransferRegion",
]

PlanSide = Literal["source", "target"]


@dataclass(frozen=True)
class PlanningLimits:
    """What a plan may not exceed. Segments count what a caller that expands regions would get."""

    max_transfer_regions: int = 1_000_000
    max_segments_per_region: int = 1_000_000
    max_total_lowered_segments: int = 10_000_000

    def __post_init__(self) -> None:
        _core.check_planning_limits(self)


@dataclass(frozen=True)
class PipelineRouteGroup:
    """The operations (by index) between two pipeline stages; a stored source has no stage."""

    source_pp: Optional[int]
    source_pipeline_stage_id: Optional[int]
    target_pp: int
    target_pipeline_stage_id: Optional[int]
    operation_indices: tuple[int, ...]

    def __post_init__(self) -> None:
        _core.check_pipeline_route_group(self)


@dataclass(frozen=True)
class PlacementExecutorPlan:
    """A participant that takes part in a plan, with all fragments that it holds."""

    placement_id: PlacementId
    participant_id: ParticipantId
    rank: ParallelRank
    placement_fragment_ids: tuple[PlacementFragmentId, ...]

    def __post_init__(self) -> None:
        _core.check_placement_executor(self)


@dataclass(frozen=True)
class LogicalTransferPlan:
    """How the target's fragments are filled, address-free and fully checked.

    Exactly one of `source_placement` and `source_manifest` is set. The planner's plans live in
    C++ and make the items of their big fields on access.
    """

    resource_id: ResourceId
    revision: RevisionId
    source_placement: Optional[WeightPlacementManifest]
    target_placement: WeightPlacementManifest
    source_tensors: tuple[TensorDescriptor, ...]
    target_tensors: tuple[TensorDescriptor, ...]
    operations: tuple[LogicalTransferOperation, ...]
    source_manifest: Optional[WeightManifest] = None
    planning_limits: PlanningLimits = PlanningLimits()
    source_executors: tuple[PlacementExecutorPlan, ...] = ()
    target_executors: tuple[PlacementExecutorPlan, ...] = ()
    source_manifest_identity: Optional[StoredManifestIdentity] = field(init=False)

    def __post_init__(self) -> None:
        vars(self).update(
            source_manifest_identity=_snapshot_identity(self.source_manifest),
            _handle=_core.make_logical_plan(self, None),
        )

    @classmethod
    def _of(
        cls,
        handle: _core.LogicalPlan,
        source: Union[WeightPlacementManifest, WeightManifest],
        target: WeightPlacementManifest,
        limits: PlanningLimits,
    ) -> LogicalTransferPlan:
        """The Python face of a plan that the planner made from `source` and `target`."""
        self = object.__new__(cls)
        stored = source if isinstance(source, WeightManifest) else None
        part = handle.local_target_part
        vars(self).update(
            resource_id=target.resource_id,
            revision=target.revision,
            source_placement=None if isinstance(source, WeightManifest) else source,
            target_placement=target,
            source_tensors=(
                source.tensors
                if isinstance(source, WeightPlacementManifest)
                else LazyTuple.over(handle.source_tensor_count, handle.source_tensors)
            ),
            target_tensors=(
                target.tensors
                if part is None
                else LazyTuple.over(handle.target_tensor_count, handle.target_tensors)
            ),
            operations=LazyTuple.over(
                handle.operation_count,
                lambda begin, end: handle.operations(
                    begin,
                    end,
                    source.fragments,
                    target.fragments if part is None else target.parts[part].fragments,
                ),
            ),
            source_manifest=stored,
            planning_limits=limits,
            source_executors=() if stored else _executors(handle, "source", source),
            target_executors=_executors(handle, "target", target),
            source_manifest_identity=None if stored is None else stored.manifest_identity,
            _handle=handle,
        )
        return self

    @property
    def total_bytes(self) -> int:
        """Bytes that the plan writes to targets."""
        return int(vars(self)["_handle"].total_bytes)

    @property
    def balance_digest(self) -> Optional[str]:
        """The `digest` of the Balance that the plan was made with; None: the contract's choice."""
        digest: Optional[str] = vars(self)["_handle"].balance_digest
        return digest

    @property
    def geometry_digest(self) -> str:
        """SHA-256, in hex, of how both sides are cut: equal for generations that are cut alike.

        A plan with another balance has another one.
        """
        digest: str = vars(self)["_handle"].geometry_digest
        return digest

    def reuse(
        self,
        source: Union[WeightPlacementManifest, WeightManifest],
        target: WeightPlacementManifest,
    ) -> LogicalTransferPlan:
        """This plan for another source and target of the same geometry, without planning.

        ValueError when the geometry digests differ, or the two are not of one revision.
        """
        handle = _core.reuse_plan(vars(self)["_handle"], source, target)
        return type(self)._of(handle, source, target, self.planning_limits)

    def save(self) -> bytes:
        """The plan without its source and target (docs/formats/plan.md)."""
        saved: bytes = vars(self)["_handle"].save()
        return saved

    @classmethod
    def load(
        cls,
        saved: bytes,
        source: Union[WeightPlacementManifest, WeightManifest],
        target: WeightPlacementManifest,
    ) -> LogicalTransferPlan:
        """A saved plan for a source and target of its geometry, proved again.

        ValueError when it is damaged, of another geometry, or does not fill the target.
        """
        handle = _core.load_plan(saved, source, target)
        return cls._of(handle, source, target, PlanningLimits(*handle.limits()))

    @property
    def source_placement_id(self) -> Optional[PlacementId]:
        return None if self.source_placement is None else self.source_placement.placement_id

    @property
    def target_placement_id(self) -> PlacementId:
        return self.target_placement.placement_id

    @property
    def pipeline_routes(self) -> tuple[PipelineRouteGroup, ...]:
        """The operations grouped by the pipeline stages that they connect."""
        if "_pipeline_routes" not in vars(self):
            routes = vars(self)["_handle"].pipeline_routes()
            vars(self)["_pipeline_routes"] = tuple(PipelineRouteGroup(*route) for route in routes)
        made: tuple[PipelineRouteGroup, ...] = vars(self)["_pipeline_routes"]
        return made

    def operation_indices_for_executor(
        self, executor: PlacementExecutorPlan, side: PlanSide
    ) -> tuple[int, ...]:
        """Which operations read from (or write to) `executor`, ascending."""
        if side not in ("source", "target"):
            raise ValueError(f"invalid executor side: {side}")
        executors = self.source_executors if side == "source" else self.target_executors
        if executor not in executors:
            raise ValueError(f"{side} executor is not part of this logical plan")
        indices: tuple[int, ...] = vars(self)["_handle"].operation_indices(
            side, executors.index(executor)
        )
        return indices

    def validate_source_manifest_snapshot(self) -> None:
        """ValueError when the source manifest is no longer what the plan was made from."""
        if _snapshot_identity(self.source_manifest) != self.source_manifest_identity:
            raise ValueError("logical transfer plan source manifest snapshot differs")

    def validate_source_placement_snapshot(self) -> None:
        """ValueError when the source placement's fields no longer give the planned placement."""
        placement = self.source_placement
        if placement is None:
            return
        if not isinstance(placement, WeightPlacementManifest):
            raise ValueError("logical transfer plan source placement is invalid")
        again = WeightPlacementManifest(
            resource_id=placement.resource_id,
            revision=placement.revision,
            weight_generation=placement.weight_generation,
            placement_set_id=placement.placement_set_id,
            topology=placement.topology,
            parts=placement.parts,
        )
        if placement.omitted_tensors:
            handle = _core.omit_tensors(again, placement.omitted_tensors)
            again = WeightPlacementManifest._of(handle)
        if again.placement_id != vars(self)["_handle"].source_placement_id:
            raise ValueError("placement_id does not match canonical logical content")
        if (again.tensors, again.fragments) != (placement.tensors, placement.fragments):
            raise ValueError("logical plan and source placement fragment snapshots differ")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        equal: bool = vars(self)["_handle"] == vars(other)["_handle"]
        return equal

    def __hash__(self) -> int:
        return hash(
            (
                self.source_placement_id,
                self.source_manifest_identity,
                self.target_placement_id,
                len(self.operations),
                self.planning_limits,
            )
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor: what arrives is checked as if it were built by hand.
        fields = (
            self.resource_id,
            self.revision,
            self.source_placement,
            self.target_placement,
            tuple(self.source_tensors),
            tuple(self.target_tensors),
            tuple(self.operations),
            self.source_manifest,
            self.planning_limits,
            tuple(self.source_executors),
            tuple(self.target_executors),
        )
        if self.balance_digest is None:
            return type(self), fields
        return _balanced, (type(self), self.balance_digest, fields)


def _balanced(
    cls: type[LogicalTransferPlan], balance_digest: str, fields: tuple[Any, ...]
) -> LogicalTransferPlan:
    """A plan from its fields, as its constructor makes it, that knows its balance."""
    plan = cls(*fields)
    vars(plan)["_handle"] = _core.make_logical_plan(plan, balance_digest)
    return plan


def _snapshot_identity(manifest: Optional[WeightManifest]) -> Optional[StoredManifestIdentity]:
    """The identity of `manifest` built anew; ValueError when its fields no longer hold together."""
    if manifest is None:
        return None
    try:
        return validate_weight_manifest_snapshot(manifest).manifest_identity
    except ValueError as error:
        raise ValueError(f"logical transfer plan source manifest is invalid: {error}") from error


def _executors(
    handle: _core.LogicalPlan, side: PlanSide, placement: Any
) -> tuple[PlacementExecutorPlan, ...]:
    return tuple(
        _executor(handle, side, index, placement) for index in range(handle.executor_count(side))
    )


def _executor(
    handle: _core.LogicalPlan, side: PlanSide, index: int, placement: WeightPlacementManifest
) -> PlacementExecutorPlan:
    participant = placement.topology.participant(handle.executor_participant(side, index))
    executor = object.__new__(PlacementExecutorPlan)
    vars(executor).update(
        placement_id=placement.placement_id,
        participant_id=participant.participant_id,
        rank=participant.rank,
        placement_fragment_ids=LazyTuple.over(
            handle.executor_fragment_count(side, index),
            lambda begin, end: handle.executor_fragment_ids(side, index, begin, end),
        ),
    )
    return executor
