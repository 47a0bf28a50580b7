"""torch state dicts as sources of a revision: plain tensors, DTensors, FSDP2.

Mesh dimensions become axes of the contract: one that shards a tensor is exported as its tp split,
whatever torch calls it (an FSDP2 shard axis too); one that replicates it, as dp replicas. Offsets
follow torch's own rule for `Shard` (chunks of ceil(extent / ranks)) and are checked against the
local tensor.
"""

from __future__ import annotations

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
from ..weight.management import WeightIdentity
from ..weight.memory import check_torch_memory, dtype_name

__all__ = ["StateDictAdapter"]


@dataclass(frozen=True)
class _Mesh:
    """The job's ranks as a (replicate, shard) grid; ranks[d][t] is a global rank."""

    ranks: tuple[tuple[int, ...], ...]
    me: int

    @property
    def dp(self) -> int:
        return len(self.ranks)

    @property
    def tp(self) -> int:
        return len(self.ranks[0])


class StateDictAdapter:
    """Publishes ``{name: tensor or DTensor}`` (an adapter for `weight_put`).

    Every rank of the job calls it with its own state dict of the same names. Plain tensors count
    as replicated on every rank. Two names of one memory (tied embeddings) become an alias group.
    What the base contract has no form for is refused with the tensor's name and the reason:
    what is no torch tensor in plain host memory (sparse, quantized and nested tensors, views with a
    pending conjugate), scalars, empty tensors, non-contiguous tensors, empty shards, and tensors
    that two mesh dimensions shard.
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
            dim = _shard_dim(name, value)
            descriptors.append(_descriptor(name, value, dim, mesh))
            for rank, global_rank in ranks.items():
                offset, shape = _box(name, value, dim, rank.tp, mesh.tp)
                if global_rank == mesh.me and tuple(_local(value).shape) != shape:
                    raise ValueError(
                        f"local shape of {name}: torch holds {tuple(_local(value).shape)}, "
                        f"rank {global_rank} of the mesh should hold {shape}"
                    )
                nbytes = _local(value).element_size()
                for extent in shape:
                    nbytes *= extent
                fragments.append(
                    PlacementFragment(
                        tensor_id=name,
                        global_offset=offset,
                        local_shape=shape,
                        nbytes=nbytes,
                        rank=rank,
                        aliases=aliases.get(name, ()),
                    )
                )
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
        return _Mesh(world, dist.get_rank())
    return _Mesh(((0,),), 0)


def _grid(name: str, value: Any) -> _Mesh:
    """(replicate, shard) ranks of a DTensor's mesh; only its last dimension may shard."""
    import torch.distributed as dist

    ranks = value.device_mesh.mesh
    if ranks.ndim > 2:
        raise ValueError(
            f"{name} lies on a mesh of {ranks.ndim} dimensions; 1 or 2 have a form here"
        )
    rows = ranks.reshape(-1, ranks.shape[-1]).tolist()
    return _Mesh(tuple(tuple(row) for row in rows), dist.get_rank())


def _shard_dim(name: str, value: Any) -> Optional[int]:
    if not _is_dtensor(value):
        return None
    placements = value.placements
    for placement in placements:
        if placement.is_partial():
            raise ValueError(f"{name} is a partial sum; reduce it before publishing")
    if any(placement.is_shard() for placement in placements[:-1]):
        raise ValueError(
            f"{name} is sharded by an outer mesh dimension ({placements}); "
            "only the last one has a form in the base contract"
        )
    last = placements[-1]
    if not last.is_shard():
        return None
    if type(last).__name__ != "Shard":
        raise ValueError(f"{name} is sharded as {last}, which has no form in the base contract")
    return last.dim % value.ndim


def _box(
    name: str, value: Any, dim: Optional[int], tp: int, tp_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = list(value.shape)
    offset = [0] * len(shape)
    if dim is not None and tp_size > 1:
        extent = shape[dim]
        chunk = -(-extent // tp_size)
        begin = min(chunk * tp, extent)
        end = min(begin + chunk, extent)
        if begin == end:
            raise ValueError(
                f"shard {tp} of {name} is empty: dimension {dim} of extent {extent} over "
                f"{tp_size} ranks; the base contract has no form for empty shards"
            )
        offset[dim], shape[dim] = begin, end - begin
    return tuple(offset), tuple(shape)


def _descriptor(name: str, value: Any, dim: Optional[int], mesh: _Mesh) -> TensorDescriptor:
    axes: list = []
    if mesh.dp > 1:
        axes.append(ReplicatedAxis("dp"))
    split = dim is not None and mesh.tp > 1
    if split:
        axes.append(SplitAxis("tp", dim))
    elif mesh.tp > 1:
        axes.append(ReplicatedAxis("tp"))
    return TensorDescriptor(
        tensor_id=name,
        global_shape=tuple(value.shape),
        dtype=dtype_name(value.dtype),
        itemsize=_local(value).element_size(),
        shard_dims=(dim,) if split else (),
        layout_fingerprint="row-major-v1",
        parallel_axes=axes,
    )


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
    if value.ndim == 0:
        raise ValueError(f"{name} is a scalar: the base contract has no form for 0-d tensors")
    if value.numel() == 0:
        raise ValueError(f"{name} is empty (shape {tuple(value.shape)}): no form for it")
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
