"""Model weights: placements, runtime bindings, stored manifests, and plans between them."""

from mooncake.reshard.contracts import RuntimeBindingFragment
from mooncake.reshard.weight._planner.balance import Balance
from mooncake.reshard.weight.adapter import WeightAdapter
from mooncake.reshard.weight.bind import bind_tensors
from mooncake.reshard.weight.binding import validate_runtime_binding, validate_runtime_bindings
from mooncake.reshard.weight.errors import (
    WeightBusyError,
    WeightCancelledError,
    WeightConflictError,
    WeightCorruptError,
    WeightDurabilityError,
    WeightExhaustedError,
    WeightInternalError,
    WeightInvalidArgumentError,
    WeightLeaseExpiredError,
    WeightNotFoundError,
    WeightNotReadyError,
    WeightOutcomeUnknownError,
    WeightPermissionDeniedError,
    WeightPolicyUnsatisfiableError,
    WeightStaleGenerationError,
    WeightStoreError,
    WeightUnavailableError,
    WeightUnsupportedError,
)
from mooncake.reshard.weight.management import (
    WeightAvailability,
    WeightIdentity,
    WeightListPage,
    WeightMigrationMode,
    WeightProgress,
    WeightResidencyState,
    WeightRevisionMetadata,
    WeightRevisionView,
    WeightStoragePolicy,
)
from mooncake.reshard.weight.part import WeightPlacementPart
from mooncake.reshard.weight.placement import WeightPlacementManifest
from mooncake.reshard.weight.planner import (
    LogicalTransferOperation,
    LogicalTransferPlan,
    PipelineRouteGroup,
    PlacementExecutorPlan,
    PlanningLimits,
    TransferRegion,
    plan_placement_transfer,
    plan_placement_transfer_to_local_target,
    plan_stored_transfer_to_target_placement,
)
from mooncake.reshard.weight.runtime import WeightRuntimeBindingManifest
from mooncake.reshard.weight.serde import weight_placement_from_json, weight_placement_to_json
from mooncake.reshard.weight.storage_manifest import (
    StoredFragment,
    StoredWeightManifest,
    WeightManifest,
)
from mooncake.reshard.weight.store import WeightStore, WeightWriter
from mooncake.reshard.weight.topology import ParallelTopology, TopologyParticipant
from mooncake.reshard.weight.types import (
    OwnershipAxis,
    ParallelRank,
    PlacementFragment,
    ReplicatedAxis,
    SplitAxis,
    TensorDescriptor,
)

# The contract's names first, in the contract's order.
__all__ = [
    "ParallelRank",
    "ParallelTopology",
    "PlacementFragment",
    "WeightPlacementManifest",
    "WeightPlacementPart",
    "RuntimeBindingFragment",
    "WeightRuntimeBindingManifest",
    "SplitAxis",
    "ReplicatedAxis",
    "OwnershipAxis",
    "TensorDescriptor",
    "TopologyParticipant",
    "validate_runtime_binding",
    "validate_runtime_bindings",
    "weight_placement_from_json",
    "weight_placement_to_json",
    "StoredFragment",
    "WeightManifest",
    "LogicalTransferPlan",
    "LogicalTransferOperation",
    "PipelineRouteGroup",
    "PlacementExecutorPlan",
    "PlanningLimits",
    "TransferRegion",
    "plan_placement_transfer",
    "plan_placement_transfer_to_local_target",
    "plan_stored_transfer_to_target_placement",
    "Balance",
    "StoredWeightManifest",
    "WeightStore",
    "WeightWriter",
    "WeightAdapter",
    "bind_tensors",
    "WeightIdentity",
    "WeightStoragePolicy",
    "WeightResidencyState",
    "WeightMigrationMode",
    "WeightAvailability",
    "WeightRevisionMetadata",
    "WeightRevisionView",
    "WeightListPage",
    "WeightProgress",
    "WeightStoreError",
    "WeightBusyError",
    "WeightCancelledError",
    "WeightConflictError",
    "WeightCorruptError",
    "WeightDurabilityError",
    "WeightExhaustedError",
    "WeightInternalError",
    "WeightInvalidArgumentError",
    "WeightLeaseExpiredError",
    "WeightNotFoundError",
    "WeightNotReadyError",
    "WeightOutcomeUnknownError",
    "WeightPermissionDeniedError",
    "WeightPolicyUnsatisfiableError",
    "WeightStaleGenerationError",
    "WeightUnavailableError",
    "WeightUnsupportedError",
]
