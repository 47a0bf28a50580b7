"""Ranks, axes, tensor descriptors and fragments: the small values of the weight contracts.

Frozen dataclasses. Construction (also by dataclasses.replace) checks every field and brings it to
canonical form; a violation is a ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Optional, Union

from mooncake import _core
from mooncake.reshard.contracts import PlacementFragmentId, TensorId
from mooncake.reshard.contracts import RuntimeBindingFragment as RuntimeBindingFragment

ParallelAxisKind = Literal["dp", "pp", "ep", "tp"]
SplitAxisKind = Literal["ep", "tp"]


@dataclass(frozen=True)
class ParallelRank:
    """A process's coordinates in a parallel run."""

    dp: int = 0
    tp: int = 0
    pp: int = 0
    ep: int = 0

    def __post_init__(self) -> None:
        _core.check_parallel_rank(self)


@dataclass(frozen=True)
class SplitAxis:
    """The tensor's dimension `dim` is cut over the ranks of `kind`."""

    kind: SplitAxisKind
    dim: int

    def __post_init__(self) -> None:
        _core.check_axis(self)


@dataclass(frozen=True)
class ReplicatedAxis:
    """Every rank of `kind` holds the same."""

    kind: ParallelAxisKind

    def __post_init__(self) -> None:
        _core.check_axis(self)


@dataclass(frozen=True)
class OwnershipAxis:
    """Some ranks of `kind` hold the tensor, each of them a whole one."""

    kind: ParallelAxisKind

    def __post_init__(self) -> None:
        _core.check_axis(self)


ParallelAxis = Union[SplitAxis, ReplicatedAxis, OwnershipAxis]


@dataclass(frozen=True)
class TensorDescriptor:
    """A logical tensor, whoever holds it. Shapes in elements, `itemsize` in bytes.

    `layout_fingerprint` is opaque: bytes are exchanged only between equal ones.
    """

    tensor_id: TensorId
    global_shape: tuple[int, ...]
    dtype: str
    itemsize: int
    shard_dims: tuple[int, ...]
    layout_fingerprint: str
    parallel_axes: tuple[ParallelAxis, ...]
    layer_id: Optional[int] = None
    expert_id: Optional[int] = None

    def __post_init__(self) -> None:
        _core.check_tensor_descriptor(self)


@dataclass(frozen=True)
class PlacementFragment:
    """The box of a tensor that one rank holds, as a dense row-major buffer of `nbytes`.

    `placement_fragment_id` is derived from the other fields unless given; `aliases` are the ids of
    all tensors that share this memory.
    """

    tensor_id: TensorId
    global_offset: tuple[int, ...]
    local_shape: tuple[int, ...]
    nbytes: int
    rank: ParallelRank
    pipeline_stage_id: Optional[int] = None
    aliases: tuple[TensorId, ...] = ()
    placement_fragment_id: Optional[PlacementFragmentId] = None

    def __post_init__(self) -> None:
        _core.check_placement_fragment(self)

    @property
    def fragment_id(self) -> PlacementFragmentId:
        """The same as `placement_fragment_id`."""
        assert self.placement_fragment_id is not None
        return self.placement_fragment_id


def validate_fragment_geometry(
    tensor: TensorDescriptor,
    *,
    fragment_id: str,
    global_offset: Sequence[int],
    local_shape: Sequence[int],
    nbytes: int,
) -> None:
    """ValueError unless the box lies in `tensor` and has the byte size that its shape says."""
    _core.validate_fragment_geometry(tensor, fragment_id, global_offset, local_shape, nbytes)


def canonical_strides_bytes(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Row-major byte strides of a dense buffer, innermost last."""
    return _core.canonical_strides_bytes(shape, itemsize)


def require_manifest_items(value: Any, name: str, item_type: type) -> tuple[Any, ...]:
    """`value` as a tuple; ValueError unless it is a sequence of `item_type`."""
    return _core.require_items(value, name, item_type)


def require_sha256_digest(value: Any, name: str) -> None:
    """ValueError unless `value` is 64 lowercase hex digits."""
    _core.require_sha256_digest(value, name)
