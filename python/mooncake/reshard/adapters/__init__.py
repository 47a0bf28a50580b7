"""Adapters: frameworks' weights as snapshots for `WeightStore.weight_put`."""

from .checkpoint import Checkpoint, CheckpointAdapter
from .layout import ParallelLayout, TensorInfo, TensorRule, balanced_cuts, layout_placement
from .runtime_v1 import runtime_v1_bindings, runtime_v1_placement
from .state_dict import StateDictAdapter

__all__ = [
    "Checkpoint",
    "CheckpointAdapter",
    "ParallelLayout",
    "StateDictAdapter",
    "TensorInfo",
    "TensorRule",
    "balanced_cuts",
    "layout_placement",
    "runtime_v1_bindings",
    "runtime_v1_placement",
]
