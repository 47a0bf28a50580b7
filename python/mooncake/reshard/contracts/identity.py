"""Names: one string type per noun, so that a type checker keeps them apart."""

from enum import Enum
from typing import NewType

ResourceId = NewType("ResourceId", str)
RevisionId = NewType("RevisionId", str)
PlacementId = NewType("PlacementId", str)
PlacementSetId = NewType("PlacementSetId", str)
PlacementFragmentId = NewType("PlacementFragmentId", str)
TopologyId = NewType("TopologyId", str)
ParticipantId = NewType("ParticipantId", str)
TensorId = NewType("TensorId", str)
RuntimeInstanceId = NewType("RuntimeInstanceId", str)
RuntimeFragmentId = NewType("RuntimeFragmentId", str)
StoredFragmentId = NewType("StoredFragmentId", str)
LeaseId = NewType("LeaseId", str)


class ResourceKind(str, Enum):
    """What a manifest describes. KV_CACHE is reserved: nothing implements it."""

    MODEL_WEIGHT = "model_weight"
    KV_CACHE = "kv_cache"
