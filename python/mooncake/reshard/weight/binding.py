"""Do runtime bindings fit their placement?"""

from __future__ import annotations

from collections.abc import Sequence

from mooncake import _core
from mooncake.reshard.weight.placement import WeightPlacementManifest
from mooncake.reshard.weight.runtime import WeightRuntimeBindingManifest


def validate_runtime_binding(
    placement: WeightPlacementManifest, binding: WeightRuntimeBindingManifest
) -> None:
    """ValueError unless `binding` gives every fragment of its participant one view.

    Views are contiguous, unless they are StridedBindingFragments. Views and storage allocations of
    one address space must not overlap, declared aliases excepted.
    """
    _require_placement(placement)
    if not isinstance(binding, WeightRuntimeBindingManifest):
        raise ValueError("binding must be a WeightRuntimeBindingManifest")
    _core.validate_runtime_binding(placement, binding)


def validate_runtime_bindings(
    placement: WeightPlacementManifest, bindings: Sequence[WeightRuntimeBindingManifest]
) -> None:
    """ValueError unless every participant that holds something is bound exactly once.

    The address rules hold over all bindings of an instance together.
    """
    _require_placement(placement)
    _core.validate_runtime_bindings(
        placement,
        _core.require_items(bindings, "runtime bindings", WeightRuntimeBindingManifest),
    )


def _require_placement(placement: object) -> None:
    if not isinstance(placement, WeightPlacementManifest):
        raise ValueError("placement must be a WeightPlacementManifest")
