"""torch state dicts as sources of a revision: plain tensors, DTensors, FSDP2, HSDP, 2-D parallel.

A mesh dimension that shards a tensor as the last one is exported as its tp split, whatever torch
calls it (an FSDP2 shard axis too); one that replicates it, as dp replicas. What that cannot say
takes the extended form: several mesh dimensions that shard one tensor (also the same dimension, in
FSDP2's strided order), empty shards, scalars and empty tensors. Offsets follow torch's own rules
(chunks of ceil(extent / ranks)) and are checked against the local tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..weight import (
    ParallelRank,
    ParallelTopology,
    PlacementFragment,
    ReplicatedAxis,
    SplitAxis,
    TensorDescriptor,
    TopologyParticipant,
    WeightPlacementManifest,
)
from ..weight.extended import ExtendedFragment, ExtendedTensor, OwnedBox
from ..weight.management import WeightIdentity
from ..weight.memory import check_torch_memory, dtype_name

__all__ = ["MeshShard", "StateDictAdapter", "shard_box"]


Box = tuple[tuple[int, ...], tuple[int, ...]]  # offset, shape


@dataclass(frozen=True)
class _Mesh:
    """The job's ranks as a grid; ranks[d][t] is a global rank, d counts all outer dimensions."""

    ranks: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    me: int

    @property
    def dp(self) -> int:
        return len(self.ranks)

    @property
    def tp(self) -> int:
        return len(self.ranks[0])

    def coordinate(self, rank: ParallelRank) -> tuple[int, ...]:
        """Along each mesh dimension."""
        outer, coordinate = rank.dp, [rank.tp]
        for size in reversed(self.shape[:-1]):
            outer, last = divmod(outer, size)
            coordinate.insert(0, last)
        return tuple(coordinate)


class StateDictAdapter:
    """Publishes ``{name: tensor or DTensor}`` (an adapter for `weight_put`).

    Every rank of the job calls it with its own state dict of the same names. Plain tensors count
    as replicated on every rank. Two names of one memory (tied embeddings) become an alias group.
    Refused, with the tensor's name and the reason: what is no torch tensor in plain host memory
    (sparse, quantized and nested tensors, views with a pending conjugate), partial sums,
    non-contiguous tensors, tensors on different meshes, and kinds of sharding that are not torch's
    chunks.
    """

    def __init__(self, identity: WeightIdentity) -> None:
        self._identity = identity
        self._made: Optional[tuple[Any, WeightPlacementManifest]] = None

    def identity(self, snapshot: Mapping[str, Any]) -> WeightIdentity:
        return self._identity

    def participants(self, snapshot: Mapping[str, Any]) -> Sequence[str]:
        return [_participant(_mesh_of(snapshot).me)]

    def tensors(self, snapshot: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        for name, value in snapshot.items():
            yield name, _local(value)

    def placement(self, snapshot: Mapping[str, Any]) -> WeightPlacementManifest:
        if self._made is None or self._made[0] is not snapshot:
            self._made = (snapshot, self._build(snapshot))
        return self._made[1]

    def _build(self, snapshot: Mapping[str, Any]) -> WeightPlacementManifest:
        for name, value in snapshot.items():
            _refuse_what_is_no_plain_tensor(name, value)
        mesh = _mesh_of(snapshot)
        ranks = {
            ParallelRank(dp=d, tp=t): mesh.ranks[d][t]
            for d in range(mesh.dp)
            for t in range(mesh.tp)
        }
        aliases = _alias_groups(snapshot)
        descriptors = []
        fragments = []
        for name, value in sorted(snapshot.items()):
            _refuse_what_has_no_form(name, value)
            boxes = {
                rank: shard_box(
                    tuple(value.shape), mesh.shape, _shards(name, value), mesh.coordinate(rank)
                )
                for rank in ranks
            }
            _check_my_box(name, value, boxes, ranks, mesh.me)
            descriptor = _descriptor(name, value, boxes, ranks, mesh)
            descriptors.append(descriptor)
            for rank, (offset, shape) in boxes.items():
                fields: dict[str, Any] = {
                    "tensor_id": name,
                    "global_offset": offset,
                    "local_shape": shape,
                    "nbytes": _local(value).element_size() * math.prod(shape),
                    "rank": rank,
                    "aliases": aliases.get(name, ()),
                }
                kind = PlacementFragment if 0 not in shape else ExtendedFragment
                fragments.append(kind(**fields))
        return WeightPlacementManifest.from_fragments(
            resource_id=self._identity.resource_id,
            revision=self._identity.revision,
            weight_generation=self._identity.weight_generation,
            placement_set_id="state-dict",
            topology=ParallelTopology(
                tp_size=mesh.tp,
                pp_size=1,
                ep_size=1,
                dp_size=mesh.dp,
                participants=[
                    TopologyParticipant(_participant(global_rank), rank)
                    for rank, global_rank in ranks.items()
                ],
            ),
            tensors=descriptors,
            fragments=fragments,
        )


def _participant(global_rank: int) -> str:
    return f"rank{global_rank:05d}"


def _is_dtensor(value: Any) -> bool:
    return hasattr(value, "device_mesh") and hasattr(value, "placements")


def _local(value: Any) -> Any:
    return value.to_local() if _is_dtensor(value) else value


def _mesh_of(snapshot: Mapping[str, Any]) -> _Mesh:
    """The one mesh of the state dict's DTensors; without any, all ranks of the job as replicas."""
    meshes = {}
    for name, value in snapshot.items():
        if _is_dtensor(value):
            meshes.setdefault(_grid(name, value), name)
    if len(meshes) > 1:
        (a, first), (b, second) = list(meshes.items())[:2]
        raise ValueError(
            f"{first} and {second} lie on different meshes, {a.ranks} and {b.ranks}: "
            "publish them as separate resources"
        )
    if meshes:
        return next(iter(meshes))
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        world = tuple((rank,) for rank in range(dist.get_world_size()))
        return _Mesh(world, (len(world), 1), dist.get_rank())
    return _Mesh(((0,),), (1, 1), 0)


def _grid(name: str, value: Any) -> _Mesh:
    import torch.distributed as dist

    ranks = value.device_mesh.mesh
    rows = ranks.reshape(-1, ranks.shape[-1]).tolist()
    return _Mesh(tuple(tuple(row) for row in rows), tuple(ranks.shape), dist.get_rank())


@dataclass(frozen=True)
class MeshShard:
    """What one mesh dimension does to a tensor: chunks of dimension `dim`.

    `strided` says that it cuts what later mesh dimensions have cut along `dim` before (FSDP2 over
    tensor parallel), and not the other way round.
    """

    dim: int
    strided: bool = False


def _shards(name: str, value: Any) -> tuple[Optional[MeshShard], ...]:
    """One a mesh dimension; None where it replicates."""
    if not _is_dtensor(value):
        return ()
    shards: list[Optional[MeshShard]] = []
    for placement in value.placements:
        if placement.is_partial():
            raise ValueError(f"{name} is a partial sum; reduce it before publishing")
        if placement.is_replicate():
            shards.append(None)
            continue
        kind = type(placement).__name__
        if kind not in ("Shard", "_StridedShard"):
            raise ValueError(f"{name} is sharded as {placement}, which is no kind of chunks")
        shards.append(MeshShard(placement.dim % value.ndim, kind == "_StridedShard"))
    return tuple(shards)


def shard_box(
    shape: tuple[int, ...],
    mesh_shape: tuple[int, ...],
    shards: Sequence[Optional[MeshShard]],
    coordinate: tuple[int, ...],
) -> Box:
    """The box that torch gives the rank at `coordinate`; it may be empty.

    Mesh dimensions cut in order, but a strided one after the later ones that cut its dimension.
    """
    offset, extents = [0] * len(shape), list(shape)
    later = [i for i, shard in enumerate(shards) if shard is not None and shard.strided]
    first = [i for i, shard in enumerate(shards) if shard is not None and not shard.strided]
    for i in first + later[::-1]:
        dim = shards[i].dim
        chunk = -(-extents[dim] // mesh_shape[i])
        begin = min(chunk * coordinate[i], extents[dim])
        offset[dim] += begin
        extents[dim] = min(begin + chunk, extents[dim]) - begin
    return tuple(offset), tuple(extents)


def _check_my_box(
    name: str, value: Any, boxes: Mapping[ParallelRank, Box], ranks: Mapping, me: int
) -> None:
    for rank, (_, shape) in boxes.items():
        # An empty local tensor's other extents are nobody's business.
        local = tuple(_local(value).shape)
        if ranks[rank] == me and local != shape and (0 not in local or 0 not in shape):
            raise ValueError(
                f"local shape of {name}: torch holds {local}, rank {me} of the mesh should hold "
                f"{shape}"
            )


def _descriptor(
    name: str,
    value: Any,
    boxes: Mapping[ParallelRank, Box],
    ranks: Mapping[ParallelRank, int],
    mesh: _Mesh,
) -> TensorDescriptor:
    shards = _shards(name, value)
    last = shards[-1] if shards else None
    dim = None if last is None or mesh.tp == 1 else last.dim
    fields: dict[str, Any] = {
        "tensor_id": name,
        "global_shape": tuple(value.shape),
        "dtype": dtype_name(value.dtype),
        "itemsize": _local(value).element_size(),
        "shard_dims": () if dim is None else (dim,),
        "layout_fingerprint": "row-major-v1",
    }
    has_elements = value.numel() > 0
    if any(shards[:-1]) or (has_elements and any(0 in shape for _, shape in boxes.values())):
        return ExtendedTensor(
            **fields | {"shard_dims": ()},
            parallel_axes=(),
            ownership=_owners(boxes, ranks) if has_elements else (),
        )
    axes: list = []
    if mesh.dp > 1:
        axes.append(ReplicatedAxis("dp"))
    if dim is not None:
        axes.append(SplitAxis("tp", dim))
    elif mesh.tp > 1:
        axes.append(ReplicatedAxis("tp"))
    kind = TensorDescriptor if has_elements and value.ndim > 0 else ExtendedTensor
    return kind(**fields, parallel_axes=axes)


def _owners(
    boxes: Mapping[ParallelRank, Box], ranks: Mapping[ParallelRank, int]
) -> tuple[tuple[OwnedBox, ...], ...]:
    owners: dict[Box, list[str]] = {}
    for rank, box in boxes.items():
        if 0 not in box[1]:
            owners.setdefault(box, []).append(_participant(ranks[rank]))
    return (tuple(OwnedBox(*box, tuple(names)) for box, names in owners.items()),)


def _refuse_what_is_no_plain_tensor(name: Any, value: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(f"the names of a state dict must be strings, got {name!r}")
    local = _local(value)
    if not (hasattr(local, "data_ptr") and hasattr(local, "element_size")):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise ValueError(f"{name} must be a torch tensor, got {kind}")
    try:
        check_torch_memory(local)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _refuse_what_has_no_form(name: str, value: Any) -> None:
    local = _local(value)
    if not local.is_contiguous():
        raise ValueError(
            f"{name} is non-contiguous (shape {tuple(local.shape)}, strides {local.stride()}): "
            "make it contiguous before publishing"
        )


def _alias_groups(snapshot: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """name -> sorted names that share its memory, shape and dtype; only groups of two and more."""
    by_memory: dict[tuple, list[str]] = {}
    for name, value in snapshot.items():
        local = _local(value)
        key = (
            local.data_ptr(),
            tuple(local.shape),
            local.dtype,
            str(getattr(value, "placements", "")),
        )
        by_memory.setdefault(key, []).append(name)
    return {
        name: tuple(sorted(names))
        for key, names in by_memory.items()
        if len(names) > 1 and key[0] != 0
        for name in names
    }
