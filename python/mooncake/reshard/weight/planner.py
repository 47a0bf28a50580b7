"""The N-D planner: which bytes of a source fill a target that is cut differently.

Pure and deterministic; a plan names fragments, never addresses. Source choice, balance, order and
limits are described in docs/contracts.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

from mooncake import _core
from mooncake.reshard.contracts import ParticipantId
from mooncake.reshard.weight._planner.balance import Balance
from mooncake.reshard.weight._planner.contracts import (
    LogicalTransferOperation,
    LogicalTransferPlan,
    PipelineRouteGroup,
    PlacementExecutorPlan,
    PlanningLimits,
    TransferRegion,
)
from mooncake.reshard.weight.placement import WeightPlacementManifest
from mooncake.reshard.weight.storage_manifest import WeightManifest

__all__ = [
    "LogicalTransferPlan",
    "LogicalTransferOperation",
    "PlanningLimits",
    "PipelineRouteGroup",
    "PlacementExecutorPlan",
    "TransferRegion",
    "plan_placement_transfer",
    "plan_placement_transfer_to_local_target",
    "plan_stored_transfer_to_target_placement",
]


def plan_placement_transfer(
    source_placement: WeightPlacementManifest,
    target_placement: WeightPlacementManifest,
    *,
    planning_limits: Optional[PlanningLimits] = None,
    balance: Union[bool, Balance] = False,
) -> LogicalTransferPlan:
    """Fills every fragment of the target from the source's memory.

    `balance`: True, or a Balance that knows hosts, spreads the reads over byte-equal replicas;
    otherwise the contract's source choice holds.
    """
    limits = _limits(planning_limits)
    hosts = _hosts(balance)
    _require_source_placement(source_placement)
    _require_target_placement(target_placement)
    handle = _core.plan_placement(source_placement, target_placement, limits, hosts)
    return LogicalTransferPlan._of(handle, source_placement, target_placement, limits)


def plan_placement_transfer_to_local_target(
    source_placement: WeightPlacementManifest,
    target_placement: WeightPlacementManifest,
    target_participant_id: Optional[ParticipantId] = None,
    *,
    planning_limits: Optional[PlanningLimits] = None,
    balance: Union[bool, Balance] = False,
) -> LogicalTransferPlan:
    """Fills one participant's fragments of the target; without an id, those of the only one.

    `balance` as in plan_placement_transfer, over this participant's reads.
    """
    limits = _limits(planning_limits)
    hosts = _hosts(balance)
    _require_source_placement(source_placement)
    _require_target_placement(target_placement)
    handle = _core.plan_placement_to_local_target(
        source_placement, target_placement, target_participant_id, limits, hosts
    )
    return LogicalTransferPlan._of(handle, source_placement, target_placement, limits)


def plan_stored_transfer_to_target_placement(
    source_manifest: WeightManifest,
    target_placement: WeightPlacementManifest,
    *,
    planning_limits: Optional[PlanningLimits] = None,
    balance: Union[bool, Balance] = False,
) -> LogicalTransferPlan:
    """Fills every fragment of the target from a stored revision.

    A stored revision has one copy of each box, so that `balance` has nothing to choose.
    """
    limits = _limits(planning_limits)
    _hosts(balance)
    if not isinstance(source_manifest, WeightManifest):
        raise ValueError("logical transfer plan source manifest is invalid")
    _require_target_placement(target_placement)
    handle = _core.plan_stored(source_manifest, target_placement, limits)
    return LogicalTransferPlan._of(handle, source_manifest, target_placement, limits)


def _limits(planning_limits: Any) -> PlanningLimits:
    if planning_limits is None:
        return PlanningLimits()
    if not isinstance(planning_limits, PlanningLimits):
        raise ValueError("planning_limits must be PlanningLimits")
    return planning_limits


def _hosts(
    balance: object,
) -> Optional[tuple[Mapping[ParticipantId, str], Mapping[ParticipantId, str]]]:
    if balance is False or balance is None:
        return None
    if balance is True:
        balance = Balance()
    if not isinstance(balance, Balance):
        raise ValueError("balance must be a bool or a Balance")
    return balance.source_hosts, balance.target_hosts


def _require_source_placement(placement: object) -> None:
    if not isinstance(placement, WeightPlacementManifest):
        raise ValueError("source placement manifests must be WeightPlacementManifest")


def _require_target_placement(placement: object) -> None:
    if not isinstance(placement, WeightPlacementManifest):
        raise ValueError("target placement manifests must be WeightPlacementManifest")
